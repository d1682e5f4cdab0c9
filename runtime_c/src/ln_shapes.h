/* Shapes: what the check functions of operators and the walks over windows share. */
#ifndef LN_SHAPES_H
#define LN_SHAPES_H

#include "ln_internal.h"

/* The last part of every check: no scratch memory, and exactly this many bytes of weights. */
ln_status ln_check_rest(const ln_call *c, uint64_t weights_bytes);

int ln_same_shape(const ln_tensor *a, const ln_tensor *b);

/* A window that slides over an image, as trainer/ops/windows.py has it: tap (u,v) of position (i,j) sees pixel
 * (i*sh - top + u*dh, j*sw - left + v*dw). */
typedef struct ln_window {
    int32_t H, W, C;   /* image */
    int32_t Ho, Wo;    /* positions */
    int32_t kh, kw;    /* taps */
    int32_t sh, sw;    /* from one position to the next */
    int32_t top, left, bottom, right;
    int32_t dh, dw;    /* from one tap to the next */
} ln_window;

/* The window of c, whose attributes are given; dilation NULL: 1. */
ln_window ln_window_of(const ln_call *c, const int32_t kernel_size[2], const int32_t stride[2],
                       const int32_t padding[4], const int32_t dilation[2]);

/* Both tensors are images, and the output has as many positions as the window takes. Says nothing of channels. */
int ln_window_holds(const ln_call *c, const ln_window *g);

/* The shape rule of pools: the window holds, channels stay, and each window sees at least one pixel. */
int ln_pool_holds(const ln_call *c, const ln_window *g);

/* Along one axis: the taps first <= t < end whose positions start + t*step lie in 0..size-1. */
typedef struct ln_taps {
    int32_t first, end;
} ln_taps;

static inline ln_taps ln_taps_inside(int32_t start, int32_t step, int32_t taps, int32_t size)
{
    ln_taps t = {0, 0};
    if (start < 0) t.first = (step - 1 - start) / step;
    if (start < size) t.end = (size - 1 - start) / step + 1;
    if (t.end > taps) t.end = taps;
    return t;
}

#endif
