/* What takes no product of a matrix, in int8: depthwise convolutions, sums, pools. Part of fast_int8_kernels.h. */

#ifndef OWN_DEPTHWISE
/* ---- depthwise: taps go in pairs, whose bytes stand side by side, so that one instruction multiplies and adds both */

#ifndef DW_WEIGHTS
#define DW_WEIGHTS(p) p
#endif

/* The weights of each pair of taps; behind the last one come zeros. */
static void dw_weights(const uint8_t *w, uint32_t width, uint32_t taps, dw_pair *pairs)
{
    for (uint32_t t = 0; t < taps; t += 2, w += 2 * (size_t)width) {
        int8_t row[2][LN_PANEL] = {{0}};
        __builtin_memcpy(row[0], w, width);
        if (t + 1 < taps) __builtin_memcpy(row[1], w + width, width);
        pairs[t / 2] = DW_WEIGHTS(dw_side_by_side(pixel(row[0]), pixel(row[1])));
    }
}

#ifdef PUTS_TILES
#define DW_FIRST(first) (first)->bias
#else
#define DW_FIRST(first) DW_ZERO
#endif

INLINE void dw_put(ln_quantum q, dw_sums s, const pv *first, int8_t *y, uint32_t live)
{
    int8_t kept[LN_PANEL];
#ifdef PUTS_TILES
    put_tile(&s, first, q, live == LN_PANEL ? y : kept, 0, 1, 1);
#else
    int32_t sums[LN_PANEL];
    PUT(sums, s);
    put16(sums, first, q, live == LN_PANEL ? y : kept);
#endif
    if (live < LN_PANEL) put_some(y, kept, live);
}

static void dw_line(const ln_depthwise8 *d, const int8_t *at, const dw_pair *w, const pv *first, int8_t *y, uint32_t live)
{
    const ln_quantum q = d->q; /* y may lie over none of the two: what is made of them is made once */
    const pv own = *first;
    for (uint32_t j = 0; j < d->Wo; j++, at += d->step_j, y += d->C) {
        dw_sums s = DW_FIRST(&own);
        uint32_t t = 0;
        for (; t + 1 < d->taps; t += 2)
            s = dw_dot(s, dw_side_by_side(pixel(at + d->tap[t]), pixel(at + d->tap[t + 1])), w[t / 2]);
        if (t < d->taps) s = dw_dot(s, dw_side_by_side(pixel(at + d->tap[t]), DW_NONE), w[t / 2]);
        dw_put(q, s, &own, y, live);
    }
}

/* 3 x 3, stride 1: the pairs are the first two taps of each column, then the third row's first two, and none and its third;
 * each pair of pixels is made once for all positions that see it. */
static void dw_line_3x3(const ln_depthwise8 *d, const int8_t *at, const dw_pair *w, const pv *first, int8_t *y,
                        uint32_t live)
{
    const size_t down = d->tap[3], right = d->tap[1];
    const ln_quantum q = d->q;
    const pv own = *first;
#define DW_COLUMN(p) dw_side_by_side(pixel(p), pixel((p) + down))
#define DW_BELOW(p) dw_side_by_side(pixel((p) + 2 * down), pixel((p) + 2 * down + right))
    dw_pair column[2] = {DW_COLUMN(at), DW_COLUMN(at + right)}, below = DW_BELOW(at);
    for (uint32_t j = 0; j < d->Wo; j++, y += d->C) {
        at += right;
        const dw_pair next = DW_COLUMN(at + right), next_below = DW_BELOW(at);
        dw_sums s = dw_dot(DW_FIRST(&own), column[0], w[0]);
        s = dw_dot(s, column[1], w[1]);
        s = dw_dot(s, next, w[2]);
        s = dw_dot(s, below, w[3]);
        s = dw_dot(s, next_below, w[4]);
        dw_put(q, s, &own, y, live);
        column[0] = column[1];
        column[1] = next;
        below = next_below;
    }
#undef DW_COLUMN
#undef DW_BELOW
}

#ifdef PUTS_TILES
/* Fewer channels, of which 16 is a multiple, and neighbours: lines are rows of bytes, with the channels again and again. */
static void dw_flat(const ln_depthwise8 *d, const uint8_t *w, const int8_t *x, int8_t *y, uint32_t row, uint32_t row_end)
{
    const uint32_t C = d->C, width = (C + 3) & ~3u, line = d->Wo * C;
    uint8_t put[8 * LN_PANEL], taps[LN_BYTE_TAPS * LN_PANEL];
    dw_pair pairs[LN_BYTE_TAPS / 2];
    ln_depthwise8 some = *d;
    for (uint32_t i = 0; i < LN_PANEL; i++) {
        __builtin_memcpy(put + 4 * i, w + 4 * (i % C), 4);
        __builtin_memcpy(put + 4 * (LN_PANEL + i), w + 4 * (width + i % C), 4);
        for (uint32_t t = 0; t < d->taps; t++) taps[t * LN_PANEL + i] = w[(8 + t) * width + i % C];
    }
    dw_weights(taps, LN_PANEL, d->taps, pairs);
    const pv first = put_load(put, put + 4 * LN_PANEL);
    some.C = LN_PANEL;
    some.step_j = LN_PANEL;
    for (uint32_t i = row; i < row_end; i++) {
        const int8_t *at = x + i * d->step_i;
        const uint32_t whole = line / LN_PANEL * LN_PANEL;
        some.Wo = whole / LN_PANEL;
        dw_line(&some, at, pairs, &first, y + i * (size_t)line, LN_PANEL);
        some.Wo = line > whole;
        dw_line(&some, at + whole, pairs, &first, y + i * (size_t)line + whole, line - whole);
    }
}
#endif

SHARED void depthwise8(const ln_depthwise8 *d, const uint8_t *w, const int8_t *x, int8_t *y, uint32_t row,
                       uint32_t row_end, uint32_t panel, uint32_t panel_end)
{
    const int by_columns = d->taps == 9 && d->step_j == d->C && d->tap[1] == d->C && d->tap[3] != 3 * (size_t)d->C
                        && d->tap[6] == 2 * d->tap[3] && d->tap[8] == d->tap[6] + 2 * d->tap[1];
#ifdef PUTS_TILES
    if (d->C < LN_PANEL && LN_PANEL % d->C == 0 && d->step_j == d->C) {
        dw_flat(d, w, x, y, row, row_end);
        return;
    }
#endif
    for (uint32_t q = panel; q < panel_end; q++) {
        const uint32_t o = q * LN_PANEL, live = d->C - o < LN_PANEL ? d->C - o : LN_PANEL, width = (live + 3) & ~3u;
        const uint8_t *wq = w + q * (size_t)LN_PANEL * (8 + d->taps);
        const pv first = put_load(wq, wq + 4 * (size_t)width);
        dw_pair pairs[LN_BYTE_TAPS / 2];
        wq += 8 * (size_t)width;
        if (by_columns) {
            static const uint8_t tap[5][2] = {{0, 3}, {1, 4}, {2, 5}, {6, 7}, {9, 8}}; /* 9: none */
            int8_t row_of[10][LN_PANEL] = {{0}};
            for (uint32_t t = 0; t < 9; t++) __builtin_memcpy(row_of[t], wq + t * (size_t)width, width);
            for (uint32_t i = 0; i < 5; i++)
                pairs[i] = DW_WEIGHTS(dw_side_by_side(pixel(row_of[tap[i][0]]), pixel(row_of[tap[i][1]])));
        } else {
            dw_weights(wq, width, d->taps, pairs);
        }
        for (uint32_t i = row; i < row_end; i++)
            (by_columns ? dw_line_3x3 : dw_line)(d, x + i * d->step_i + o, pairs, &first, y + (size_t)i * d->Wo * d->C + o,
                                                 live);
    }
}
#endif

/* ---- the rest */

#ifndef TWO_PRODUCTS
INLINE dw_sums two_products(DW_PIXEL a, DW_PIXEL b, int16_t m1, int16_t m2)
{
    const dw_pair m = dw_twice((int32_t)((uint32_t)(uint16_t)m2 << 16 | (uint16_t)m1));
    return dw_dot(DW_ZERO, dw_side_by_side(a, b), m);
}
#endif

#ifndef TWO_PRODUCTS
/* Factors of up to 22 bits in two parts: of 128 and of what remains. */
INLINE dw_sums two_large_products(DW_PIXEL a, DW_PIXEL b, int32_t m1, int32_t m2)
{
    const dw_pair x = dw_side_by_side(a, b), low = dw_twice((m2 & 127) << 16 | (m1 & 127));
    const dw_pair high = dw_twice((int32_t)((uint32_t)(m2 >> 7) << 16 | (uint16_t)(m1 >> 7)));
    return dw_dot(dw_times128(dw_dot(DW_ZERO, x, high)), x, low);
}
#endif

/* Factors of 16 bits, as the exporter's are, take fewer instructions. */
SHARED void add8(const int8_t *a, const int8_t *b, int8_t *y, size_t n, int32_t m1, int32_t m2, int32_t c, ln_quantum q)
{
    const int small = m1 == (int16_t)m1 && m2 == (int16_t)m2;
    size_t i = 0;
#ifdef SHIFTS_32
    for (; small && i + 32 <= n; i += 32)
        shift32(two_products(pixel(a + i), pixel(b + i), (int16_t)m1, (int16_t)m2),
                two_products(pixel(a + i + 16), pixel(b + i + 16), (int16_t)m1, (int16_t)m2), c, q, y + i);
#else
    for (; small && i + 16 <= n; i += 16)
        shift16(two_products(pixel(a + i), pixel(b + i), (int16_t)m1, (int16_t)m2), c, q, y + i);
#endif
    for (; i + 16 <= n; i += 16) shift16(two_large_products(pixel(a + i), pixel(b + i), m1, m2), c, q, y + i);
    for (; i < n; i++) {
        const int32_t v = ((a[i] * m1 + b[i] * m2 + c) >> q.shift) + q.z;
        y[i] = (int8_t)(v < q.lo ? q.lo : v > q.hi ? q.hi : v);
    }
}

SHARED void most8(const int8_t *x, int8_t *y, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16b v, next;
        GET(v, y + i);
        GET(next, x + i);
        LARGER(v, next);
        PUT(y + i, v);
    }
    for (; i < n; i++) y[i] = x[i] > y[i] ? x[i] : y[i];
}

#ifndef OWN_ENTER
/* y[i] = clamp(z + x[i] inverse), rounded as ln_rounded does; 0 where an x is not finite */
SHARED int enter8(const float *x, int8_t *y, size_t n, float inverse, int32_t z)
{
    const ln_quant all = {-128, 127, 0, 0, 0, 0};
    const ln_quantum q = {z, -128, 127, 0, 0};
    size_t i = 0;
    if (!ln_all_finite(x, (uint32_t)n)) return 0;
    for (; i + 16 <= n; i += 16) shift16(dw_rounded(x + i, inverse), 0, q, y + i);
    for (; i < n; i++) y[i] = ln_held(&all, z, ln_rounded(x[i] * inverse));
    return 1;
}
#endif

#ifndef OWN_SUM8
SHARED void sum8(const int8_t *x, int32_t *sum, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const dw_sums one = two_products(pixel(x + i), pixel(x + i), 1, 0); /* compilers widen bytes one by one */
        v16i s, v;
        GET(s, sum + i);
        GET(v, &one);
        s += v;
        PUT(sum + i, s);
    }
    for (; i < n; i++) sum[i] += x[i];
}
#endif
