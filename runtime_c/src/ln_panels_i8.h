/* The product of rows of int8 with packed weights, which linear and conv2d are:
 *
 *     y[m][o] = z + (B[o] + sum_k x[m][k] w[k][o]) M[o] / 2^(31+S), rounded once and held within lo to hi
 *
 * Weights lie in panels of 16 output channels (FORMAT.md, "panels8"): B, then M, then for each four k the four weights
 * of each channel. K is rounded up to a multiple of 4. LN_ROWS rows are taken at once: a weight read once is used as many
 * times. A row need not lie in one piece, nor anywhere: it is fetched a piece at a time. */
#ifndef LN_PANELS_I8_H
#define LN_PANELS_I8_H

#include "ln_int8.h"
#include "ln_panels.h"

enum { /* values of a row that fetch can hold: a multiple of 4 */
#ifdef LN_SMALL
    LN_HELD = 32
#else
    LN_HELD = 64
#endif
};

typedef struct ln_piece { /* the next n values of each row */
    const int8_t *x[LN_ROWS];
    int8_t held[LN_ROWS][LN_HELD]; /* for values that are gathered: x may point here */
} ln_piece;

/* Sets p->x to values k and following of the rows and returns how many: a multiple of 4, or all
 * that are left, and then 4 - n % 4 bytes more can be read, whatever they are. */
typedef uint32_t (*ln_fetch)(void *source, uint32_t k, ln_piece *p);

typedef struct ln_panels_i8 {
    uint32_t O, K;  /* channels and inputs of the block of panels */
    int32_t z;      /* zero point of y */
    ln_quant q;     /* lo, hi, shift */
} ln_panels_i8;

/* y[m][o] for m < rows (1 to LN_ROWS) and o < p->O. y may not overlap what is fetched. */
void ln_panels_i8_run(const ln_panels_i8 *p, const uint8_t *w, ln_fetch fetch, void *source, uint32_t rows,
                      int8_t *const y[LN_ROWS]);

/* Bytes of one panel of `width` channels: of panels8 with K inputs rounded up, of depthwise8 with its taps. */
static inline size_t ln_panel_i8_bytes(uint32_t width, uint32_t K)
{
    return (size_t)width * (8 + (size_t)K);
}

/* y[j] of n sums; M: their multipliers, as stored. */
void ln_finish_i8(const ln_panels_i8 *p, const uint32_t *sum, const uint8_t *M, int8_t *y, uint32_t n);

#endif
