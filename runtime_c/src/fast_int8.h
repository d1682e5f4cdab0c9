/* Kernels over bytes: what the files of the fast way for int8 operators share. Every result is, bit for bit, that of the
 * portable kernels: sums are of whole numbers, and a result is rounded once (FORMAT.md, "int8"). */
#ifndef LN_FAST_INT8_H
#define LN_FAST_INT8_H

#include "ln_internal.h"
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

enum {
    LN_GATHERED = 1024,  /* bytes of a row that is copied together, at most */
    LN_BYTE_SPANS = 256, /* of a row */
    LN_BYTE_TAPS = 64    /* of a depthwise convolution */
};

/* How a sum becomes a byte: clamp(z + requant(sum, multiplier), lo, hi). */
typedef struct ln_quantum {
    int32_t z, lo, hi;
} ln_quantum;

/* Rows times packed weights (layout panels8). A row is read in spans, n_u times n_v of them, n bytes each: n is a multiple
 * of 4, or the spans are copied together first. Rows are the positions of a window over an image; a plain matrix is an
 * image of one column. */
typedef struct ln_product8 {
    uint32_t O, K;         /* channels and inputs of the panels */
    uint32_t n_u, n_v, n;  /* spans */
    uint32_t gathered;     /* 1: rows are copied together, and K is at most LN_GATHERED */
    size_t step_u, step_v; /* bytes from one span to the next */
    size_t step_i, step_j; /* bytes from one position to the one below it, and to the one right of it */
    uint32_t Wo;           /* positions side by side; with pool: half of them */
    uint32_t pool;         /* 1: of each 2 x 2 positions the largest value is stored, and four rows make one */
    size_t y_step;         /* bytes from one stored row to the next */
    ln_quantum q;
    const int32_t *bias;   /* of all panels, 16 each, for kernels that lift x; else NULL: as stored */
    const int16_t *wide;   /* the weights of all panels, without biases, for kernels that widen; else NULL */
} ln_product8;

/* A depthwise convolution over an image that has its border: 16 bytes behind its last pixel may be read. */
typedef struct ln_depthwise8 {
    uint32_t C, Ho, Wo, taps;
    size_t tap[LN_BYTE_TAPS]; /* bytes from a position to each of its taps */
    size_t step_i, step_j;    /* bytes from one position to the one below it, and to the one right of it */
    ln_quantum q;
} ln_depthwise8;

typedef struct ln_int8 {
    const char *name;
    uint32_t lifts;        /* 1: x is taken as x + 128, so biases are less 128 times the sum of the weights */
    uint32_t widens;       /* 1: x is int16_t, and so are the weights; steps count numbers, not bytes */
    /* rows [row, row_end) of y, channels of the panels [panel, panel_end); with pool, rows are multiples of 4 */
    void (*product)(const ln_product8 *p, const uint8_t *w, const void *x, int8_t *y, uint32_t row, uint32_t row_end,
                    uint32_t panel, uint32_t panel_end);
    /* rows [row, row_end) of positions, channels of the panels [panel, panel_end) */
    void (*depthwise)(const ln_depthwise8 *d, const uint8_t *w, const int8_t *x, int8_t *y, uint32_t row,
                      uint32_t row_end, uint32_t panel, uint32_t panel_end);
    /* y[i] = clamp(z + ((a[i] m1 + b[i] m2 + c) >> shift), lo, hi) */
    void (*add)(const int8_t *a, const int8_t *b, int8_t *y, size_t n, int32_t m1, int32_t m2, int32_t c, uint32_t shift,
                ln_quantum q);
    /* y[i] = max(y[i], x[i]) */
    void (*most)(const int8_t *x, int8_t *y, size_t n);
    /* sum[i] += x[i] */
    void (*sum)(const int8_t *x, int32_t *sum, size_t n);
} ln_int8;

extern const ln_int8 ln_int8_sse2, ln_int8_avx2, ln_int8_vnni, ln_int8_neon, ln_int8_dot, ln_int8_wasm;

/* Bytes of a panel `width` wide over K inputs, and of all panels of O channels. */
static inline size_t ln_panel8_bytes(uint32_t width, uint32_t K)
{
    return (size_t)width * (8 + (((size_t)K + 3) & ~(size_t)3));
}

#endif
