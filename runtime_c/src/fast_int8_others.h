/* What takes no product of a matrix, in int8: depthwise convolutions, sums, pools. Part of fast_int8_kernels.h. */

#ifndef OWN_DEPTHWISE
/* ---- depthwise: taps go in pairs, whose bytes stand side by side, so that one instruction multiplies and adds both */

#ifndef DW_WEIGHTS
#define DW_WEIGHTS(p) p
#endif

/* The weights of each pair of taps; behind the last one come zeros. by_columns: in the order of the 3 x 3 kernels below. */
static void dw_weights(const uint8_t *w, uint32_t width, uint32_t taps, int by_columns, dw_pair *pairs)
{
    static const uint8_t column[10] = {0, 3, 1, 4, 2, 5, 6, 7, 9, 8}; /* 9: none */
    int8_t row[LN_BYTE_TAPS + 1][LN_PANEL] = {{0}};
    for (uint32_t t = 0; t < taps; t++) __builtin_memcpy(row[t], w + t * (size_t)width, width);
    for (uint32_t t = 0; t < taps; t += 2) {
        const int8_t *a = row[by_columns ? column[t] : t], *b = row[by_columns ? column[t + 1] : t + 1];
        pairs[t / 2] = DW_WEIGHTS(dw_side_by_side(pixel(a), pixel(b)));
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

/* 3 x 3: the pairs are the first two taps of each column, then the third row's first two, and none and its third. With stride 1
 * each pair of pixels is made once for all positions that see it. */
#define DW_COLUMN(p) dw_side_by_side(pixel(p), pixel((p) + down))
#define DW_BELOW(p) dw_side_by_side(pixel((p) + 2 * down), pixel((p) + 2 * down + right))

#ifdef PUTS_TILES
/* `lines` lines of all channels of a panel; once, 1: the stride is 1. */
INLINE void dw_nine(const ln_depthwise8 *d, const int8_t *x, const dw_pair *w, const pv *first, int8_t *y, uint32_t lines,
                    const int once)
{
    const size_t down = d->tap[3], right = d->tap[1];
    const ln_quantum q = d->q; /* y may lie over none of the two: what is made of them is made once */
    const pv own = *first;
    for (; lines; lines--, x += d->step_i) {
        const int8_t *at = x;
        dw_pair column[2] = {DW_COLUMN(at), DW_COLUMN(at + right)}, below = DW_BELOW(at);
        for (uint32_t j = 0; j < d->Wo; j++, y += d->C) {
            if (!once) {
                column[0] = DW_COLUMN(at);
                column[1] = DW_COLUMN(at + right);
                below = DW_BELOW(at);
            }
            const dw_pair third = DW_COLUMN(at + 2 * right), last = DW_BELOW(at + right);
            va s = dw_dot(own.bias, column[0], w[0]);
            s = dw_dot(s, column[1], w[1]);
            s = dw_dot(s, third, w[2]);
            s = dw_dot(s, below, w[3]);
            s = dw_dot(s, last, w[4]);
            put_tile(&s, &own, q, y, 0, 1, 1);
            at += d->step_j;
            column[0] = column[1];
            column[1] = third;
            below = last;
        }
    }
}

static void dw_lines(const ln_depthwise8 *d, const int8_t *x, const dw_pair *w, const pv *first, int8_t *y, uint32_t lines)
{
    if (d->step_j == d->tap[1]) dw_nine(d, x, w, first, y, lines, 1);
    else dw_nine(d, x, w, first, y, lines, 0);
}
#define DW_LINE dw_line
#else
#define DW_LINE (by_columns ? dw_line_3x3 : dw_line)
static void dw_line_3x3(const ln_depthwise8 *d, const int8_t *at, const dw_pair *w, const pv *first, int8_t *y,
                        uint32_t live)
{
    const size_t down = d->tap[3], right = d->tap[1];
    const ln_quantum q = d->q;
    const pv own = *first;
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
}
#endif

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
    const int nine = d->taps == 9 && d->across == 3;
    dw_weights(taps, LN_PANEL, d->taps, nine, pairs);
    const pv first = put_load(put, put + 4 * LN_PANEL);
    const uint32_t whole = line / LN_PANEL * LN_PANEL;
    some.C = LN_PANEL;
    some.step_j = LN_PANEL;
    for (uint32_t i = row; i < row_end; i++) {
        const int8_t *at = x + i * d->step_i;
        int8_t kept[LN_PANEL], *to = y + i * (size_t)line;
        some.Wo = whole / LN_PANEL;
        if (nine) dw_lines(&some, at, pairs, &first, to, 1);
        else dw_line(&some, at, pairs, &first, to, LN_PANEL);
        if (line == whole) continue;
        some.Wo = 1;
        if (nine) dw_lines(&some, at + whole, pairs, &first, kept, 1);
        else dw_line(&some, at + whole, pairs, &first, kept, LN_PANEL);
        put_some(to + whole, kept, line - whole);
    }
}
#endif

SHARED void depthwise8(const ln_depthwise8 *d, const uint8_t *w, const int8_t *x, int8_t *y, uint32_t row,
                       uint32_t row_end, uint32_t panel, uint32_t panel_end)
{
    const int nine = d->taps == 9 && d->across == 3;
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
        const int8_t *at = x + row * d->step_i + o;
        int8_t *to = y + (size_t)row * d->Wo * d->C + o;
#ifdef PUTS_TILES
        const int by_columns = nine && live == LN_PANEL;
#else
        const int by_columns = nine && d->step_j == d->tap[1];
#endif
        wq += 8 * (size_t)width;
        dw_weights(wq, width, d->taps, by_columns, pairs);
#ifdef PUTS_TILES
        if (by_columns) {
            dw_lines(d, at, pairs, &first, to, row_end - row);
            continue;
        }
#endif
        for (uint32_t i = row; i < row_end; i++, at += d->step_i, to += (size_t)d->Wo * d->C)
            DW_LINE(d, at, pairs, &first, to, live);
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
