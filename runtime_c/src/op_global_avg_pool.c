/* global_avg_pool   y[c] = mean_ij x[i,j,c]
 * x (H,W,C)  y (C)   Cost H*W*C additions. y may not overlap x.
 * Rows are summed on their own first, so that the rounding error grows with H + W and not with H * W. */
#include "ln_math.h"
#include "ln_shapes.h"

ln_status ln_global_avg_pool_check(const ln_call *c)
{
    const ln_tensor *x = &c->in[0], *y = &c->out;
    if (x->rank != 3 || y->rank != 1 || y->dims[0] != x->dims[2]) return LN_BAD_SHAPE;
    if (ln_is_i8(c) && (uint64_t)x->dims[0] * x->dims[1] > (uint32_t)1 << 22) return LN_BAD_SHAPE;
    return ln_check_rest(c, 0);
}

void ln_global_avg_pool_run(const ln_call *c)
{
    const size_t H = c->in[0].dims[0], W = c->in[0].dims[1], C = c->in[0].dims[2];
    const float count = (float)(H * W);
    for (size_t first = 0; first < C; first += LN_LANES) {
        const size_t live = C - first < LN_LANES ? C - first : LN_LANES;
        const float *x = c->x[0] + first;
        float sum[LN_LANES] = {0};
        for (size_t i = 0; i < H; i++) {
            float row[LN_LANES] = {0};
            for (size_t j = 0; j < W; j++, x += C)
                if (live == LN_LANES)
                    for (int k = 0; k < LN_LANES; k++) row[k] += x[k];
                else
                    for (size_t k = 0; k < live; k++) row[k] += x[k];
            for (int k = 0; k < LN_LANES; k++) sum[k] += row[k];
        }
        for (size_t k = 0; k < live; k++) c->y[first + k] = sum[k] / count;
    }
}

uint64_t ln_global_avg_pool_macs(const ln_call *c)
{
    (void)c;
    return 0;
}
