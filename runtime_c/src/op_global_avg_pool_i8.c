/* global_avg_pool on int8   y[c] = z + requant(sum_ij x[i,j,c] - H W zx, M1)
 * x (H,W,C), H W <= 2^22   y (C)   Cost H*W*C additions. y may not overlap x. */
#include "ln_int8.h"

#ifdef LN_WITH_I8

void ln_global_avg_pool_i8_run(const ln_call *c)
{
    enum { TOGETHER = 16 }; /* channels */
    const ln_quant q = ln_quant_of(c->op.attrs);
    const size_t C = c->in[0].dims[2], pixels = (size_t)c->in[0].dims[0] * c->in[0].dims[1];
    const int32_t zeros = (int32_t)pixels * c->in[0].zero_point;
    for (size_t first = 0; first < C; first += TOGETHER) {
        const size_t live = C - first < TOGETHER ? C - first : TOGETHER;
        int32_t sum[TOGETHER] = {0};
        const int8_t *x = c->qx[0] + first;
        for (size_t p = 0; p < pixels; p++, x += C)
            for (size_t k = 0; k < live; k++) sum[k] += x[k];
        for (size_t k = 0; k < live; k++)
            c->qy[first + k] = ln_held(&q, c->out.zero_point, ln_requant(sum[k] - zeros, q.m1, 0));
    }
}

#endif
