/* Kernels over bytes: what the files of the fast way for int8 operators share. Every result is, bit for bit, that of the
 * portable kernels: sums are of whole numbers, and a result is rounded once (FORMAT.md, "int8"). */
#ifndef LN_FAST_INT8_SET_H
#define LN_FAST_INT8_SET_H

#include "ln_int8.h"
#include "ln_panels.h"
#include "ln_shapes.h"

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#endif
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(__x86_64__) && defined(__GNUC__) && (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define LN_AVX_VNNI /* the compiler knows it */
#endif

enum {
    LN_BYTE_SPANS = 256, /* of a row */
    LN_BYTE_TAPS = 64,   /* of a depthwise convolution */
    LN_BYTES_BEHIND = 64,
    LN_WIDEN8_MOST = 192, /* numbers of a row that products widen themselves, some rows at a time: no frame is written */
    LN_WINO8_POINTS = 36,    /* of a tile of Winograd's algorithm */
    LN_WINO8_BLOCK = 16,     /* tiles that are worked on together */
    LN_WINO8_CHUNK = 16,     /* channels of a tile that lie together, behind them those of the block's next tile */
    LN_WINO8_CHANNELS = 224, /* most inputs: of more, sums might not be found again in 32 bits (fast_int8_winograd.h) */
    LN_WINO8_BYTES = 1 << 23 /* most of such weights, where those show that more inputs are in order */
};

/* How a sum becomes a byte: clamp(z + requant(sum, multiplier, shift), lo, hi). shift is at most 7, so that before it a number
 * that saturates at 16 bits, with z added, is outside a byte behind it. */
typedef struct ln_quantum {
    int32_t z, lo, hi;
    uint32_t shift; /* of a sum of two tensors 1 to 24 */
    int32_t flip;   /* is added to the byte: 128 for a reader that lifts x, else 0 */
} ln_quantum;

static inline ln_quantum ln_quantum_of(const ln_call *c)
{
    const ln_quant q = ln_quant_of(c->op.attrs);
    const ln_quantum r = {c->out.zero_point, q.lo, q.hi, q.shift, 0};
    return r;
}

/* Rows times packed weights (layout panels8). A row is read in spans, n_u times n_v of them, n numbers each, a multiple of
 * 4, or of 2 where weights stand by twos. Rows are the positions of a window over an image; a plain matrix is an image of
 * one column. */
typedef struct ln_product8 {
    uint32_t O;            /* channels */
    uint32_t n_u, n_v, n;  /* spans */
    size_t step_u, step_v; /* numbers from one span to the next */
    size_t step_i, step_j; /* numbers from one position to the one below it, and to the one right of it */
    uint32_t Wo;           /* positions side by side; with pool: half of them */
    uint32_t pool;         /* 1: of each 2 x 2 positions the largest value is stored, and four rows make one */
    size_t y_step;         /* bytes from one stored row to the next */
    size_t y_gap;          /* and besides, where Wo are stored; other than 0, as q.flip, only for sets with depthwise_lifts */
    uint32_t bytes;        /* 1: though the kernels widen, x is bytes: rows of up to LN_WIDEN8_MOST, one behind the other */
    size_t stored;         /* bytes of a stored panel of 16 */
    const int32_t *bias;   /* of all panels, 16 each, for kernels that lift x; NULL: the stored ones */
    const void *weights;   /* of all panels, in the order of the spans and of the kernel's type; NULL: the stored ones, with
                            * kernels that widen for one row in one span */
    ln_quantum q;
} ln_product8;

/* A depthwise convolution over an image that has its border: LN_BYTES_BEHIND its last pixel may be read. For sets with
 * depthwise_lifts a line has first its pixels 0, sw, 2 sw ..., then 1, 1 + sw ... (sw: the stride): those that one tap sees
 * from neighbouring positions are neighbours. */
typedef struct ln_depthwise8 {
    uint32_t C, Ho, Wo, taps, across; /* taps, and of those side by side */
    size_t tap[LN_BYTE_TAPS]; /* bytes from a position to each of its taps */
    size_t step_i, step_j;    /* bytes from one position to the one below it, and to the one right of it */
    ln_quantum q;
} ln_depthwise8;

/* A 3 x 3 convolution of stride 1 by Winograd's algorithm F(4 x 4, 3 x 3). */
typedef struct ln_wino8 {
    int32_t H, W, Ho, Wo, top, left, zero; /* zero: what is outside the image */
    uint32_t C, O;           /* multiples of 16; C <= LN_WINO8_CHANNELS, or ln_wino8_fits */
    uint32_t tiles_down, tiles_right;
    uint32_t pool;           /* 1: the largest of each 2 x 2 outputs is stored */
    size_t stored;           /* bytes of a stored panel of 16 */
    const int16_t *weights;  /* [point][panel of 16][C][16], or with ln_int8.pairs [C / 2][16][2] */
    ln_quantum q;
} ln_wino8;

/* Numbers from one point to the next, of weights, transformed inputs and sums, and from one tile's sums to the next's. A bit
 * more than they need: sizes are mostly powers of two, and the same number of all points would be in one set of the cache. */
static inline size_t ln_wino8_weights_step(const ln_wino8 *p)
{
    return (size_t)p->C * p->O + 2 * LN_PANEL;
}

static inline size_t ln_wino8_in_step(const ln_wino8 *p)
{
    return (size_t)LN_WINO8_BLOCK * p->C + 2 * LN_PANEL;
}

static inline size_t ln_wino8_out_row(const ln_wino8 *p)
{
    return (size_t)p->O + LN_PANEL;
}

static inline size_t ln_wino8_out_step(const ln_wino8 *p)
{
    return LN_WINO8_BLOCK * ln_wino8_out_row(p) + LN_PANEL;
}

static inline size_t ln_wino8_scratch(const ln_wino8 *p) /* bytes, a multiple of 16 */
{
    return LN_WINO8_POINTS * (sizeof(int16_t) * ln_wino8_in_step(p) + sizeof(int32_t) * ln_wino8_out_step(p)) + p->C;
}

typedef struct ln_int8 {
    const char *name;
    uint32_t lifts;        /* 1: products read x + 128, a uint8_t, so biases are less 128 times the sum of the weights */
    uint32_t depthwise_lifts; /* 1: so does the depthwise convolution, which makes up for it itself */
    uint32_t widens;       /* 1: products read int16_t, weights too; steps count numbers, not bytes. 2: and weights by two k,
                            * doubled */
    uint32_t pairs;        /* 1: Winograd's weights of two inputs stand side by side */
    uint32_t products, wino_products; /* that are added in a cycle, about: of bytes, and of Winograd's points */
    /* rows [row, row_end) of y, channels of the panels [panel, panel_end); with pool, rows are multiples of 4 */
    void (*product)(const ln_product8 *p, const uint8_t *w, const void *x, int8_t *y, uint32_t row, uint32_t row_end,
                    uint32_t panel, uint32_t panel_end);
    /* rows [row, row_end) of positions, channels of the panels [panel, panel_end) */
    void (*depthwise)(const ln_depthwise8 *d, const uint8_t *w, const int8_t *x, int8_t *y, uint32_t row,
                      uint32_t row_end, uint32_t panel, uint32_t panel_end);
    /* tiles [tile, tile_end), channels of the panels [panel, panel_end); w: the stored panels, scratch: ln_wino8_scratch
     * bytes; NULL: there is none */
    void (*wino)(const ln_wino8 *p, const uint8_t *w, const int8_t *x, int8_t *y, void *scratch, uint32_t tile,
                 uint32_t tile_end, uint32_t panel, uint32_t panel_end);
    /* y[i] = clamp(z + ((a[i] m1 + b[i] m2 + c) >> shift), lo, hi) */
    void (*add)(const int8_t *a, const int8_t *b, int8_t *y, size_t n, int32_t m1, int32_t m2, int32_t c, ln_quantum q);
    /* y[i] = max(y[i], x[i]) */
    void (*most)(const int8_t *x, int8_t *y, size_t n);
    /* as ln_fast.enter */
    int (*enter)(const float *x, int8_t *y, size_t n, float inverse, int32_t z);
    /* sum[i] += x[i] */
    void (*sum)(const int8_t *x, int32_t *sum, size_t n);
    /* x as products read it */
    void (*copy)(const int8_t *x, void *y, size_t n);
} ln_int8;

extern const ln_int8 ln_int8_sse2, ln_int8_avx2, ln_int8_avxvnni, ln_int8_vnni, ln_int8_neon, ln_int8_dot, ln_int8_wasm;

/* What ln_product8 points to where stored weights do not serve: for spans of `taken` numbers which are rounded up to
 * multiples of 4, and for kernels that lift or widen x. Bytes of weights and biases, 0 where the stored ones do; w: the
 * stored panels. */
size_t ln_product8_weights(const ln_int8 *kernels, const ln_product8 *p, uint32_t taken);
size_t ln_product8_biases(const ln_int8 *kernels, const ln_product8 *p);
void ln_product8_prepare(const ln_int8 *kernels, const ln_product8 *p, uint32_t taken, const uint8_t *w, void *weights,
                         int32_t *bias);

/* Are the sums of p found again in 32 bits, whatever x is? w: the stored panels. */
int ln_wino8_fits(const ln_wino8 *p, const uint8_t *w);

/* Winograd's weights of p to `weights`, LN_WINO8_POINTS * ln_wino8_weights_step(p) numbers; w: the stored panels. */
void ln_wino8_prepare(const ln_wino8 *p, uint32_t pairs, const uint8_t *w, int16_t *weights);

#endif
