/* The kernels over bytes, written once for every instruction set. A file fast_int8_<set>.c defines what follows, then
 * includes this file, and so becomes that set's kernels.
 *
 *     va                   a vector of int32 sums, of OUTS of the 16 channels of a panel, each in two parts
 *     vx                   four bytes of x as every channel's sum needs them; SPLAT4(p) reads them from any address
 *     DOT(s,w,x)           s with the products of the OUTS x 4 weights at w and x added
 *     DOT2(s,w,x,v,y)      both DOT(s,w,x) and DOT(s,v,y), where that takes less than the two; may be undefined
 *     FOLD(to,s,v)         the v * OUTS whole sums of s[0..v) to int32_t to[]
 *     LIFTS, WIDENS        1: x comes as x + 128, in a byte; x and weights come as 16-bit numbers; 2: and weights by two k,
 *                          not by four, and doubled
 *     DOUBLED              defined where vectors of sums are twice the sums (put_load doubles biases)
 *     byte                 what x and weights are in memory: int8_t or int16_t
 *     VECTORS              of the register tiles, which have a row or two; a panel has a multiple of them
 *     PRODUCTS             of bytes that are added in a cycle, about
 *     put16                sums of 16 channels in memory to bytes
 *     PUTS_TILES           there is put_tile instead, which does so with several rows of sums in vectors
 *     dw_pair, dw_sums ... of the depthwise kernel, see there. OWN_DEPTHWISE: the set has its own, in the file
 *                          OTHER_DEPTHWISE where that is defined; DEPTHWISE_LIFTS as LIFTS
 *     OWN_PRODUCT          the file that has the set's products: of the above it needs no more than va, byte and ZERO
 *     OWN_LARGER           the set has larger16 itself
 *     WINO_TILES ...       of Winograd's algorithm, where a set has it: fast_int8_winograd.h
 *     SHARED               how those functions are declared that another set takes; static where not defined
 *     PRODUCTS_ONLY        defined where all but the products are another set's
 *
 * Sums are arrays with fixed indices: every loop over them is unrolled, so that they are registers. */
#ifndef LN_FAST_INT8_KERNELS_H
#define LN_FAST_INT8_KERNELS_H

/* Where the spans of `count` rows from `row` on begin; and unless `to` is NULL where their outputs do, pooled of each four. */
INLINE void find_rows8(const ln_product8 *p, const byte *x, uint32_t row, uint32_t count, const byte **at, int8_t *y,
                       int8_t **to)
{
    const uint32_t first = p->pool ? row / 4 : row, i = first / p->Wo;
    uint32_t j = first - i * p->Wo;
    const size_t down = p->pool ? 2 * p->step_i : p->step_i, right = p->pool ? 2 * p->step_j : p->step_j;
    const byte *line = x + i * down, *here = line + j * right;

    if (to) y += first * p->y_step + i * p->y_gap;
    for (uint32_t m = 0; m < count;) {
        at[m++] = here;
        if (to) {
            *to++ = y;
            y += p->y_step;
        }
        if (p->pool) {
            at[m] = here + p->step_j;
            at[m + 1] = here + p->step_i;
            at[m + 2] = here + p->step_i + p->step_j;
            m += 3;
        }
        here += right;
        if (++j == p->Wo) {
            j = 0;
            line += down;
            here = line;
            if (to) y += p->y_gap;
        }
    }
}

#ifndef OWN_PRODUCT
enum {
    TOGETHER = 4,          /* k whose weights stand together */
    MOST_ROWS = 12,        /* that are taken at once: whole groups of four */
    PIECE = VECTORS * OUTS /* channels of a tile */
};

typedef struct tile8 { /* what a register tile is told; all counts are of numbers */
    const size_t *span, *span_end; /* where in a row its spans of n begin */
    size_t n;
    size_t group; /* from one group of k to the next: so many times the panel's width */
} tile8;

/* sums[m][0..PIECE) of R rows, whose first spans begin at x[m]; w: the first group of k. */
INLINE void tile8_sums(const tile8 *t, const byte *const *x, const byte *w, int32_t *sums, const int R)
{
    va s[2 * VECTORS];

    UNROLL
    for (int i = 0; i < R * VECTORS; i++) s[i] = ZERO;
    for (const size_t *span = t->span; span != t->span_end; span++) {
        const size_t end = *span + t->n;
        size_t k = *span;
#ifdef DOT2
        for (; k + 8 <= end; k += 8, w += 2 * t->group) {
            UNROLL
            for (int m = 0; m < R; m++) {
                const vx a = SPLAT4(x[m] + k), b = SPLAT4(x[m] + k + 4);
                UNROLL
                for (int j = 0; j < VECTORS; j++)
                    s[m * VECTORS + j] = DOT2(s[m * VECTORS + j], w + j * (4 * OUTS), a, w + t->group + j * (4 * OUTS), b);
            }
        }
#endif
        for (; k < end; k += TOGETHER, w += t->group) {
            UNROLL
            for (int m = 0; m < R; m++) {
                const vx a = SPLAT4(x[m] + k);
                UNROLL
                for (int j = 0; j < VECTORS; j++) s[m * VECTORS + j] = DOT(s[m * VECTORS + j], w + j * (4 * OUTS), a);
            }
        }
    }
    UNROLL
    for (int m = 0; m < R; m++) FOLD(sums + m * PIECE, s + m * VECTORS, VECTORS);
}

static void tile8_1(const tile8 *t, const byte *const *x, const byte *w, int32_t *sums)
{
    tile8_sums(t, x, w, sums, 1);
}

static void tile8_2(const tile8 *t, const byte *const *x, const byte *w, int32_t *sums)
{
    tile8_sums(t, x, w, sums, 2);
}
#endif

/* Vectors of which the compiler makes what it has. They are no arguments: how those are passed depends on the set. */
typedef int8_t v16b __attribute__((vector_size(16)));
typedef int32_t v16i __attribute__((vector_size(64)));
#define GET(v, p) __builtin_memcpy(&(v), p, sizeof(v))
#define PUT(p, v) __builtin_memcpy(p, &(v), sizeof(v))
#define LARGER(v, a) v = ((v) & ((v) > (a))) | ((a) & ~((v) > (a)))

#ifndef OWN_LARGER
INLINE void larger16(int32_t *s, const int32_t *other)
{
    v16i most, next;
    GET(most, s);
    GET(next, other);
    LARGER(most, next);
    PUT(s, most);
}
#endif

/* The first `live` of 16 bytes. */
INLINE void put_some(int8_t *y, const int8_t *kept, uint32_t live)
{
    uint32_t c = 0;
    for (; c + 4 <= live; c += 4) __builtin_memcpy(y + c, kept + c, 4);
    for (; c < live; c++) y[c] = kept[c];
}

#ifdef OWN_PRODUCT
#include OWN_PRODUCT
#else
/* Sums of `rows` rows, `step` from one to the next, to bytes; pooled, the largest of each four. Channels from o on, of a
 * panel whose biases and multipliers are at w. Those of a narrow panel are read beyond its width: the program section,
 * which follows the weights, has more than the 64 bytes that are seen so. */
static void put_rows8(const ln_product8 *p, const uint8_t *w, uint32_t width, int32_t *sums, size_t step, uint32_t rows,
                      int8_t *y, uint32_t o, uint32_t live)
{
    const uint8_t *bias = p->bias ? (const uint8_t *)(p->bias + o) : w, *scale = w + 4 * (size_t)width;
    int8_t kept[LN_PANEL];
    const pv first = put_load(bias, scale);
    if (live == LN_PANEL && !p->pool) {
        for (uint32_t m = 0; m < rows; m++, y += p->y_step) put16(sums + m * step, &first, p->q, y);
        return;
    }
    for (uint32_t m = 0; m < rows; y += p->y_step) {
        int32_t *s = sums + m * step;
        if (p->pool) {
            for (uint32_t k = 1; k < 4; k++) larger16(s, s + k * step);
            m += 3;
        }
        m++;
        if (live == LN_PANEL) {
            put16(s, &first, p->q, y);
        } else {
            put16(s, &first, p->q, kept);
            put_some(y, kept, live);
        }
    }
}

/* Rows at[0..rows) times the channels of a panel, to y. */
static void some_channels8(const ln_product8 *p, tile8 *t, const byte *const *at, const uint8_t *w, uint32_t rows,
                           int8_t *y, uint32_t panel)
{
    const uint32_t o = panel * LN_PANEL, live = p->O - o < LN_PANEL ? p->O - o : LN_PANEL;
    const uint32_t width = (live + 3) & ~3u;
    const uint8_t *stored = w + panel * p->stored;
    const byte *weights = p->weights ? (const byte *)p->weights + (size_t)o * (size_t)(t->span_end - t->span) * p->n
                                     : (const byte *)stored + 8 * (size_t)width;
    int32_t sums[MOST_ROWS * LN_PANEL + LN_PANEL];

    t->group = TOGETHER * (size_t)width;
    for (uint32_t m = 0, n; m < rows; m += n) {
        n = rows - m < 2 ? 1 : 2;
        for (uint32_t j = 0; j < width; j += PIECE) { /* not all of the last piece need be channels */
            int32_t some[2 * PIECE];
            (n == 1 ? tile8_1 : tile8_2)(t, at + m, weights + 4 * (size_t)j, some);
            for (uint32_t r = 0; r < n; r++)
                __builtin_memcpy(sums + (m + r) * LN_PANEL + j, some + r * PIECE, PIECE * sizeof *some);
        }
    }
    put_rows8(p, stored, width, sums, LN_PANEL, rows, y, o, live);
}

static void product8(const ln_product8 *p, const uint8_t *w, const void *x, int8_t *y, uint32_t row, uint32_t row_end,
                     uint32_t panel, uint32_t panel_end)
{
    const uint32_t unit = p->pool ? 4 : 1, spans = p->n_u * p->n_v;
    size_t span[LN_BYTE_SPANS];
    const byte *at[MOST_ROWS];
    tile8 t = {span, span + spans, p->n, 0};

    for (uint32_t i = 0; i < spans; i++) span[i] = i / p->n_v * p->step_u + i % p->n_v * p->step_v;
    for (; panel < panel_end; panel++)
        for (uint32_t r = row, n; r < row_end; r += n) {
            n = row_end - r < MOST_ROWS ? row_end - r : MOST_ROWS;
            find_rows8(p, x, r, n, at, NULL, NULL);
            some_channels8(p, &t, at, w, n, y + (size_t)(r / unit) * p->y_step + panel * LN_PANEL, panel);
        }
}

#endif

/* ---- the frame */

static void copy8(const int8_t *x, void *y, size_t n)
{
#if WIDENS
    typedef int16_t v16w __attribute__((vector_size(32)));
    byte *to = y;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        v16b v;
        GET(v, x + i);
        const v16w w = __builtin_convertvector(v, v16w);
        PUT(to + i, w);
    }
    for (; i < n; i++) to[i] = x[i];
#elif LIFTS
    typedef int8_t v64b __attribute__((vector_size(64)));
    uint8_t *to = y;
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        v64b v;
        GET(v, x + i);
        v ^= -128;
        PUT(to + i, v);
    }
    for (; i + 16 <= n; i += 16) {
        v16b v;
        GET(v, x + i);
        v ^= -128;
        PUT(to + i, v);
    }
    for (; i < n; i++) to[i] = (uint8_t)(x[i] ^ -128);
#else
    __builtin_memcpy(y, x, n);
#endif
}

#ifndef SHARED
#define SHARED static
#endif
#ifndef PRODUCTS_ONLY
#include "fast_int8_others.h"
#ifdef OTHER_DEPTHWISE
#include OTHER_DEPTHWISE
#endif
#ifdef WINO_TILES
#include "fast_int8_winograd.h"
#else
#define wino8 NULL
#define WINO_PAIRS 0
#define WINO_PRODUCTS 0
#endif
#endif

#ifndef DEPTHWISE_LIFTS
#define DEPTHWISE_LIFTS 0
#endif

const ln_int8 INT8 = {INT8_NAME, LIFTS, DEPTHWISE_LIFTS, WIDENS, WINO_PAIRS, PRODUCTS, WINO_PRODUCTS, product8, depthwise8, wino8,
                      add8, most8, enter8, sum8, copy8};

#endif
