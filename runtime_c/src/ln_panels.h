/* The product of rows with packed weights, which linear, conv2d and embed_projection are:
 *
 *     y[m][o] = act(b[o] + sum_k x[m][k] w[k][o])
 *
 * Weights lie in panels of 16 output channels: bias[16], then for each k w[k][16]; the last panel is as wide as its
 * channels rounded up to a multiple of 4. They are read in place, as float32 or as halves.
 *
 * A row need not lie in one piece: it is a list of spans, pieces of memory. So a convolution takes the pixels under
 * its taps from the image itself, and needs no copy of them. LN_ROWS rows are taken at once: a weight read once is used
 * as many times. Sums run over k in order, each product rounded: equal inputs give equal bits on every machine. */
#ifndef LN_PANELS_H
#define LN_PANELS_H

#include "ln_internal.h"
#include "ln_math.h"

enum {
    LN_PANEL = LN_LANES, /* channels of a panel */
#ifdef LN_SMALL
    LN_ROWS = 2,         /* rows taken at once */
    LN_SPANS = 9         /* of one list, which lies on the stack; a longer one is made in parts */
#else
    LN_ROWS = 4,
    LN_SPANS = 50        /* a 7 x 7 kernel needs at most 49 */
#endif
};

typedef struct ln_span { /* the next n values of each row */
    const float *x[LN_ROWS];
    uint32_t n;
} ln_span;

typedef struct ln_spans {
    uint32_t count;
    ln_span span[LN_SPANS];
} ln_spans;

/* Lists the spans from value k of the rows on, as many as fit; returns the k after the last one listed. All LN_ROWS
 * pointers are set: where there are fewer rows, to any of them. Called for k = 0, for k where the last list ended,
 * and from 0 again for another panel. */
typedef uint32_t (*ln_list_spans)(void *source, uint32_t k, ln_spans *list);

typedef struct ln_panels {
    uint32_t O, K;       /* channels and inputs of the block of panels */
    uint32_t dtype;      /* LN_F32 or LN_F16 */
    uint32_t act;        /* LN_ACT_* */
    float alpha;
} ln_panels;

/* y[m][o] for m < rows (1 to LN_ROWS) and o < p->O. y may not overlap what the spans point to. */
void ln_panels_run(const ln_panels *p, const uint8_t *w, ln_list_spans list_spans, void *source, uint32_t rows,
                   float *const y[LN_ROWS]);

/* Bytes of the panels of O channels, below 2^30, over K inputs; 2^40, which no file has, where they pass 2^34. dtype: that
 * of weights; LN_I8: of panels8. */
uint64_t ln_panels_bytes(uint32_t O, uint64_t K, uint32_t dtype);

/* n numbers of a weights block, from the index-th on, as float32. */
void ln_read_weights(const uint8_t *w, uint32_t dtype, size_t index, float *out, size_t n);

#endif
