/* Winograd's algorithm F(4 x 4, 3 x 3) in whole numbers: 36 products where the direct sum takes 144, and its sums to the
 * bit. Part of fast_int8_kernels.h, of sets that define
 *
 *     WIDE                 16-bit numbers of a vector; WIDE_LOAD(p): so many bytes as such
 *     SUMS                 32-bit sums of a vector
 *     WINO_SUMS, WINO_ZERO a vector of sums, and of zeros, where va and ZERO are not
 *     WINO_TILES(T)        T(R): rows of the product's register tiles; WINO_MOST: of the largest
 *     ADD_PAIRS(s,w,x)     s with the products of two channels added: w has SUMS x 2 weights, x is PAIR(p), the two inputs at
 *                          p for every sum. Or else: STEP_CHANNELS, and step_sums as below; maybe START_SUMS, whose sums
 *                          are the first of those products
 *
 * With the matrices of Lavin and Gray (2015; points 0, 1, -1, 2, -2, infinity), those of the weights times 24,
 *
 *     576 y = A' [ sum over c of (24 G w 24 G') (B' x B) ] A
 *
 * where B' x B is within 100 x 128, a 16-bit number; so are the weights, within 144 x 128, as the last row's 24 is 12, and 2 in
 * A. Sums wrap modulo 2^32. That is exact: 576 is 9 times 64, 9 has an inverse modulo 2^32, and 64 y modulo 2^32 is enough, as
 * |y| <= 9 C 128 128 < 2^25 for C <= LN_WINO8_CHANNELS, and for more where 128 times the sum of a channel's weights, without
 * their signs, is so small.
 *
 * Tiles go through in blocks: transform their inputs to scratch, multiply point by point, transform back, round, store. */

#define WINO_INVERSE 0x38E38E39u /* 9 times this is 1 modulo 2^32 */
#ifdef DOUBLED
#define WINO_SHIFT 5
#else
#define WINO_SHIFT 6
#endif

enum { POINTS = LN_WINO8_POINTS, BLOCK = LN_WINO8_BLOCK, CHUNK = LN_WINO8_CHUNK, PANEL_SUMS = LN_PANEL / SUMS };

typedef uint16_t vw __attribute__((vector_size(2 * WIDE)));
typedef uint32_t vu __attribute__((vector_size(4 * SUMS)));
typedef int32_t vs __attribute__((vector_size(4 * SUMS)));

/* Six values `step` apart to points: t = B' d. */
INLINE void to_points8(const vw *d, vw *t)
{
    const vw a = d[4] - (d[2] << 2), b = d[3] - (d[1] << 2), c = d[4] - d[2], f = d[3] - d[1], e = f + f;
    t[0] = ((d[0] - d[2]) << 2) + c;
    t[1] = a + b;
    t[2] = a - b;
    t[3] = c + e;
    t[4] = c - e;
    t[5] = d[5] - d[3] - (e + e);
}

/* The 36 pixels of a tile to a row of `to`, whose points are `step` numbers apart. */
static void inputs_to_points8(const int8_t *const *at, uint32_t C, int16_t *to, size_t step)
{
    for (uint32_t c = 0; c < C; c += WIDE) {
        int16_t *first = to + c / CHUNK * (BLOCK * CHUNK) + c % CHUNK;
        vw h[POINTS], d[6], t[6];
        for (int j = 0; j < 6; j++) {
            UNROLL
            for (int i = 0; i < 6; i++) d[i] = (vw)WIDE_LOAD(at[6 * i + j] + c);
            to_points8(d, t);
            UNROLL
            for (int i = 0; i < 6; i++) h[6 * i + j] = t[i];
        }
        for (int i = 0; i < 6; i++, first += 6 * step) {
            to_points8(h + 6 * i, t);
            UNROLL
            for (int j = 0; j < 6; j++) PUT(first + (size_t)j * step, t[j]);
        }
    }
}

#ifndef WINO_SUMS
#define WINO_SUMS va
#define WINO_ZERO ZERO
#endif

#ifdef ADD_PAIRS
#define WINO_PAIRS 1
#define STEP_CHANNELS 2

/* R rows, CHUNK numbers apart: some channels' products are added to their sums. */
INLINE void step_sums(WINO_SUMS *s, const int16_t *w, const int16_t *x, const int R)
{
    UNROLL
    for (int m = 0; m < R; m++) {
        UNROLL
        for (int j = 0; j < PANEL_SUMS; j++)
            s[m * PANEL_SUMS + j] = ADD_PAIRS(s[m * PANEL_SUMS + j], w + 2 * SUMS * j, PAIR(x + m * CHUNK));
    }
}
#elif !defined(WINO_PAIRS)
#define WINO_PAIRS 0
#endif

#ifndef PUT_SUMS
#define PUT_SUMS(p, s) PUT(p, s)
#endif

/* Sums of R tiles, the first at x, and 16 channels, to `out`. */
INLINE void wino_sums(const int16_t *x, const int16_t *w, uint32_t C, int32_t *out, size_t row, const int R)
{
    WINO_SUMS s[WINO_MOST * PANEL_SUMS];
    int k = 0;
#ifdef START_SUMS
    START_SUMS(s, w, x, R);
    k = STEP_CHANNELS;
    w += STEP_CHANNELS * LN_PANEL;
#else
    UNROLL
    for (int i = 0; i < R * PANEL_SUMS; i++) s[i] = WINO_ZERO;
#endif
    for (; C; C -= CHUNK, x += BLOCK * CHUNK, k = 0)
        for (; k < CHUNK; k += STEP_CHANNELS, w += STEP_CHANNELS * LN_PANEL) step_sums(s, w, x + k, R);
    UNROLL
    for (int m = 0; m < R; m++) {
        UNROLL
        for (int j = 0; j < PANEL_SUMS; j++) PUT_SUMS(out + (size_t)m * row + j * SUMS, s[m * PANEL_SUMS + j]);
    }
}

typedef void wino_tile(const int16_t *x, const int16_t *w, uint32_t C, int32_t *out, size_t row);
#define WINO_TILE(R)                                                                                    \
    static void wino_tile_##R(const int16_t *x, const int16_t *w, uint32_t C, int32_t *out, size_t row) \
    {                                                                                                   \
        wino_sums(x, w, C, out, row, R);                                                                \
    }
WINO_TILES(WINO_TILE)
#undef WINO_TILE

#define WINO_TILE(R) [R] = wino_tile_##R,
static wino_tile *const WINO_TILE_OF[WINO_MOST + 1] = {WINO_TILES(WINO_TILE)};
#undef WINO_TILE

/* The rows of the smallest tile that has so many, or of the largest: a block has room for the rows that are too many. */
static uint32_t wino_rows(uint32_t rows)
{
    uint32_t n = rows < WINO_MOST ? rows : WINO_MOST;
    while (WINO_TILE_OF[n] == NULL) n++;
    return n;
}

/* Four outputs of six points: t = A d. */
INLINE void from_points8(const vu *d, vu *t)
{
    const vu s = d[1] + d[2], e = d[1] - d[2], p = d[3] + d[4], q = d[3] - d[4], f = q + q, g = f + f + d[5];
    t[0] = d[0] + s + p;
    t[1] = e + f;
    t[2] = s + (p << 2);
    t[3] = e + (g + g);
}

/* The 16 sums of each of 4 x 4 outputs from their points, which are `step` apart. */
static void sums_from_points8(const int32_t *from, size_t step, int32_t (*sums)[LN_PANEL])
{
    for (int k = 0; k < LN_PANEL; k += SUMS, from += SUMS) {
        vu h[24], d[6], t[4];
        for (int j = 0; j < 6; j++) {
            UNROLL
            for (int i = 0; i < 6; i++) GET(d[i], from + (size_t)(6 * i + j) * step);
            from_points8(d, t);
            UNROLL
            for (int i = 0; i < 4; i++) h[6 * i + j] = t[i];
        }
        for (int i = 0; i < 4; i++) {
            from_points8(h + 6 * i, t);
            UNROLL
            for (int j = 0; j < 4; j++) {
                const vs y = (vs)(t[j] * WINO_INVERSE) >> WINO_SHIFT;
                PUT(&sums[4 * i + j][k], y);
            }
        }
    }
}

/* One tile's outputs of the panels [panel, panel_end), rounded and stored, or the largest of each four. */
static void put_outputs8(const ln_wino8 *p, uint32_t tile, const uint8_t *w, const int32_t *from, size_t step, int8_t *y,
                         uint32_t panel, uint32_t panel_end)
{
    const uint32_t shift = p->pool, Ho = (uint32_t)p->Ho >> shift, Wo = (uint32_t)p->Wo >> shift, side = 4 >> shift;
    const uint32_t i0 = tile / p->tiles_right * side, j0 = tile % p->tiles_right * side;
    const uint32_t rows = Ho - i0 < side ? Ho - i0 : side, columns = Wo - j0 < side ? Wo - j0 : side;
    const ln_quantum quantum = p->q;
    const size_t O = p->O, line = Wo * O;
    int32_t sums[16][LN_PANEL];

    y += i0 * line + j0 * O + panel * LN_PANEL;
    for (uint32_t q = panel; q < panel_end; q++, y += LN_PANEL) {
        const uint8_t *stored = w + q * p->stored;
        const pv first = put_load(stored, stored + 4 * LN_PANEL);
        sums_from_points8(from + q * LN_PANEL, step, sums);
#ifdef PUTS_TILES
        for (uint32_t i = 0; i < rows; i++) {
            int32_t(*from_row)[LN_PANEL] = sums + (i << shift) * 4;
            va s[4];
            UNROLL
            for (int j = 0; j < 4; j++) s[j] = added(first.bias, sixteen_at(from_row[j]));
            if (shift) {
                UNROLL
                for (int j = 0; j < 4; j++) s[j] = most_of(s[j], added(first.bias, sixteen_at(from_row[4 + j])));
                s[0] = most_of(s[0], s[1]);
                s[1] = most_of(s[2], s[3]);
            }
            put_tile(s, &first, quantum, y + i * line, O, (int)columns, 4);
        }
#else
        for (uint32_t i = 0; i < rows; i++)
            for (uint32_t j = 0; j < columns; j++) {
                int32_t(*s)[LN_PANEL] = sums + (i << shift) * 4 + (j << shift);
                if (shift) {
                    larger16(s[0], s[1]);
                    larger16(s[0], s[4]);
                    larger16(s[0], s[5]);
                }
                put16(s[0], &first, quantum, y + i * line + j * O);
            }
#endif
    }
}

/* The pixels that a tile sees; those outside the image are at `border`. */
static void find_inputs8(const ln_wino8 *p, uint32_t tile, const int8_t *x, const int8_t *border, const int8_t **at)
{
    const int32_t i0 = (int32_t)(tile / p->tiles_right) * 4 - p->top, j0 = (int32_t)(tile % p->tiles_right) * 4 - p->left;
    for (int32_t i = i0; i < i0 + 6; i++) {
        const uint32_t inside = i >= 0 && i < p->H ? (uint32_t)p->W : 0;
        const size_t line = (size_t)i * (size_t)p->W;
        if (inside && j0 >= 0 && j0 + 6 <= p->W) {
            const int8_t *first = x + (line + (size_t)j0) * p->C;
            for (int j = 0; j < 6; j++, first += p->C) *at++ = first;
            continue;
        }
        for (int32_t j = j0; j < j0 + 6; j++) *at++ = (uint32_t)j < inside ? x + (line + (size_t)j) * p->C : border;
    }
}

SHARED void wino8(const ln_wino8 *p, const uint8_t *w, const int8_t *x, int8_t *y, void *scratch, uint32_t first,
                  uint32_t end, uint32_t panel, uint32_t panel_end)
{
    const size_t in_step = ln_wino8_in_step(p), row = ln_wino8_out_row(p), out_step = ln_wino8_out_step(p);
    const uint32_t blocks = (end - first + BLOCK - 1) / BLOCK;
    int16_t *in = scratch;
    int32_t *out = (int32_t *)(void *)(in + POINTS * in_step);
    int8_t *border = (int8_t *)(out + POINTS * out_step);

    for (uint32_t c = 0; c < p->C; c++) border[c] = (int8_t)p->zero;
    for (uint32_t block = blocks, count; first < end; first += count, block--) {
        count = (end - first + block - 1) / block;
        for (uint32_t i = 0; i < count; i++) {
            const int8_t *at[POINTS];
            find_inputs8(p, first + i, x, border, at);
            inputs_to_points8(at, p->C, in + i * CHUNK, in_step);
        }
        for (uint32_t point = 0; point < POINTS; point++) {
            const int16_t *weights = p->weights + point * ln_wino8_weights_step(p);
            for (uint32_t i = 0, n; i < count; i += n) {
                n = wino_rows(count - i);
                for (uint32_t q = panel; q < panel_end; q++)
                    WINO_TILE_OF[n](in + point * in_step + i * CHUNK, weights + (size_t)q * p->C * LN_PANEL, p->C,
                                    out + point * out_step + i * row + q * LN_PANEL, row);
            }
        }
        for (uint32_t i = 0; i < count; i++)
            put_outputs8(p, first + i, w, out + i * row, out_step, y, panel, panel_end);
    }
}
