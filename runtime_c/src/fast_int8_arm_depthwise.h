/* Depthwise convolutions on ARM: part of fast_int8_kernels.h. Two taps' products of bytes have their sum in 16 bits, as
 * no weight is -128; it is added to a sum of 32 bits that begins with the bias. Up to 8 channels take half a vector. */

/* To s, the sums of 16 channels, or of 8, the products of two taps. */
INLINE void dw_add2(int32x4_t *s, int8x16_t a, int8x16_t w, int8x16_t b, int8x16_t v, const int half)
{
    const int16x8_t low = vmlal_s8(vmull_s8(vget_low_s8(a), vget_low_s8(w)), vget_low_s8(b), vget_low_s8(v));
    s[0] = vaddw_s16(s[0], vget_low_s16(low));
    s[1] = ADDW_HIGH(s[1], low);
    if (half) return;
    const int16x8_t high = MLAL_HIGH(MULL_HIGH(a, w), b, v);
    s[2] = vaddw_s16(s[2], vget_low_s16(high));
    s[3] = ADDW_HIGH(s[3], high);
}

INLINE void dw_add1(int32x4_t *s, int8x16_t a, int8x16_t w, const int half)
{
    const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(w));
    s[0] = vaddw_s16(s[0], vget_low_s16(low));
    s[1] = ADDW_HIGH(s[1], low);
    if (half) return;
    const int16x8_t high = MULL_HIGH(a, w);
    s[2] = vaddw_s16(s[2], vget_low_s16(high));
    s[3] = ADDW_HIGH(s[3], high);
}

INLINE void dw_put(int32x4_t *s, const int32x4_t *scale, limits q, int8_t *y, uint32_t live, const int half)
{
    const int vectors = half ? 2 : 4;
    requant(s, scale, q, vectors);
    if (half) {
        const int8x8_t b = held8(s[0], s[1], q);
        if (live == 8) vst1_s8(y, b);
        else store_some(y, b, live);
    } else if (live == LN_PANEL) {
        store_held(s, q, y);
    } else {
        int8_t kept[LN_PANEL];
        store_held(s, q, kept);
        for (uint32_t c = 0; c < live; c++) y[c] = kept[c];
    }
}

typedef struct dw_panel {
    int8_t w[LN_BYTE_TAPS + 1][LN_PANEL]; /* behind the last tap zeros */
    pv first;
    limits q;
    uint32_t live;
} dw_panel;

/* A line of positions, whose first has its first tap at `at`. */
INLINE void dw_line(const ln_depthwise8 *d, const int8_t *at, const dw_panel *p, int8_t *y, const int half)
{
    for (uint32_t j = 0; j < d->Wo; j++, at += d->step_j, y += d->C) {
        int32x4_t s[4];
        uint32_t t = 0;
        UNROLL
        for (int i = 0; i < 4; i++) s[i] = p->first.bias[i];
        for (; t + 1 < d->taps; t += 2)
            dw_add2(s, vld1q_s8(at + d->tap[t]), vld1q_s8(p->w[t]), vld1q_s8(at + d->tap[t + 1]), vld1q_s8(p->w[t + 1]),
                    half);
        if (t < d->taps) dw_add1(s, vld1q_s8(at + d->tap[t]), vld1q_s8(p->w[t]), half);
        dw_put(s, p->first.scale, p->q, y, p->live, half);
    }
}

/* Keeps gcc from taking halves of the weights to registers of their own. */
INLINE void dw_keep(int8x16_t *w, const int half)
{
    UNROLL
    for (int i = 0; i < 9; i++)
        if (!half) __asm__("" : "+w"(w[i]));
}

/* 3 x 3: x are the three columns of a position. */
INLINE void dw_3x3(int8x16_t (*x)[3], int8x16_t *w, const pv *first, limits q, int8_t *y, uint32_t live,
                   const int half)
{
    int32x4_t s[4] = {first->bias[0], first->bias[1], first->bias[2], first->bias[3]};
    dw_keep(w, half);
    dw_add2(s, x[0][0], w[0], x[0][1], w[1], half);
    dw_add2(s, x[0][2], w[2], x[1][0], w[3], half);
    dw_add2(s, x[1][1], w[4], x[1][2], w[5], half);
    dw_add2(s, x[2][0], w[6], x[2][1], w[7], half);
    dw_add1(s, x[2][2], w[8], half);
    dw_put(s, first->scale, q, y, live, half);
    IN_ORDER;
}

INLINE void dw_column(const int8_t *at, size_t down, int8x16_t *x)
{
    x[0] = vld1q_s8(at);
    x[1] = vld1q_s8(at + down);
    x[2] = vld1q_s8(at + 2 * down);
}

/* Of 3 x 3 taps: with stride 1 two positions go together, which share two columns. */
INLINE void dw_line_3x3(const ln_depthwise8 *d, const int8_t *at, const dw_panel *p, int8_t *y, const int half)
{
    const size_t down = d->tap[3], right = d->tap[1], C = d->C, step = d->step_j;
    const pv first = p->first;
    const limits q = p->q;
    const uint32_t live = p->live;
    int8x16_t w[9], x[4][3];
    uint32_t left = d->Wo;
    UNROLL
    for (int i = 0; i < 9; i++) w[i] = vld1q_s8(p->w[i]);
    for (; step == right && left >= 2; left -= 2, at += 2 * step, y += 2 * C) {
        dw_column(at, down, x[0]);
        dw_column(at + right, down, x[1]);
        dw_column(at + 2 * right, down, x[2]);
        dw_3x3(x, w, &first, q, y, live, half);
        dw_column(at + 3 * right, down, x[3]);
        dw_3x3(x + 1, w, &first, q, y + C, live, half);
    }
    for (; left; left--, at += step, y += C) {
        dw_column(at, down, x[0]);
        dw_column(at + right, down, x[1]);
        dw_column(at + 2 * right, down, x[2]);
        dw_3x3(x, w, &first, q, y, live, half);
    }
}

#define DW_LINE(name, line, half)                                                                      \
    static void name(const ln_depthwise8 *d, const int8_t *at, const dw_panel *p, int8_t *y)           \
    {                                                                                                  \
        line(d, at, p, y, half);                                                                       \
    }
DW_LINE(dw_whole, dw_line, 0)
DW_LINE(dw_half, dw_line, 1)
DW_LINE(dw_whole_3x3, dw_line_3x3, 0)
DW_LINE(dw_half_3x3, dw_line_3x3, 1)
#undef DW_LINE

SHARED void depthwise8(const ln_depthwise8 *d, const uint8_t *w, const int8_t *x, int8_t *y, uint32_t row,
                       uint32_t row_end, uint32_t panel, uint32_t panel_end)
{
    const int square = d->taps == 9 && d->tap[2] == 2 * d->tap[1] && d->tap[3] != 3 * d->tap[1]
                    && d->tap[6] == 2 * d->tap[3] && d->tap[8] == d->tap[6] + d->tap[2]; /* 3 x 3, not 1 x 9 or 9 x 1 */
    for (uint32_t n = panel; n < panel_end; n++) {
        const uint32_t o = n * LN_PANEL, live = d->C - o < LN_PANEL ? d->C - o : LN_PANEL, width = (live + 3) & ~3u;
        const uint8_t *from = w + n * (size_t)LN_PANEL * (8 + d->taps);
        dw_panel p = {.first = put_load(from, from + 4 * (size_t)width), .q = limits_of(d->q), .live = live};

        from += 8 * (size_t)width;
        for (uint32_t t = 0; t < d->taps; t++, from += width)
            __builtin_memcpy(p.w[square ? t % 3 * 3 + t / 3 : t], from, width);
        for (uint32_t i = row; i < row_end; i++) {
            const int8_t *at = x + i * d->step_i + o;
            int8_t *to = y + (size_t)i * d->Wo * d->C + o;
            if (live <= 8) (square ? dw_half_3x3 : dw_half)(d, at, &p, to);
            else (square ? dw_whole_3x3 : dw_whole)(d, at, &p, to);
        }
    }
}
