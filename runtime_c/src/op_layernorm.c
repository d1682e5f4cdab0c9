/* layernorm   y[..,c] = gamma[c] (x[..,c] - mean) / sqrt(var + eps) + beta[c], mean and var over c
 * x, y (..,C), each row on its own   w gamma[C], beta[C] float32   Cost 2n multiply-accumulates, in three passes over
 * a row. y may be x.
 *
 * The mean, once rounded, is off by a little, e. Both it and the variance are put right from the sums of
 * d = x - mean, which are small: e = sum(d)/C and var = sum(d^2)/C - e^2. So rows of a large mean stay accurate. */
#include "ln_lanes.h"
#include "ln_shapes.h"

ln_status ln_layernorm_check(const ln_call *c)
{
    if (!ln_same_shape(&c->in[0], &c->out)) return LN_BAD_SHAPE;
    return ln_check_rest(c, (uint64_t)c->in[0].dims[c->in[0].rank - 1] * 8);
}

/* sum and sum of squares of x - origin, over C values */
static void moments(const float *x, size_t C, float origin, float *sum, float *squares)
{
    float s[LN_LANES] = {0}, s2[LN_LANES] = {0}; /* in parts: s[k] of every sixteenth value */
    for (size_t first = 0; first < C; first += LN_LANES) {
        const size_t live = ln_live_lanes(C, first);
        float d[LN_LANES];
        ln_get_lanes(d, x + first, live);
        for (int k = 0; k < LN_LANES; k++) d[k] -= origin;
        for (size_t k = live; k < LN_LANES; k++) d[k] = 0.0f;
        for (int k = 0; k < LN_LANES; k++) s[k] += d[k];
        for (int k = 0; k < LN_LANES; k++) s2[k] += d[k] * d[k];
    }
    *sum = ln_sum_lanes(s);
    *squares = ln_sum_lanes(s2);
}

void ln_layernorm_run(const ln_call *c)
{
    ln_layernorm_attrs a;
    ln_layernorm_decode(c->op.attrs, &a);
    const size_t C = c->in[0].dims[c->in[0].rank - 1], rows = c->in[0].elements / C;
    const float *w = ln_floats(c->w);
    const float count = (float)C;
    for (size_t r = 0; r < rows; r++) {
        const float *x = c->x[0] + r * C;
        float *y = c->y + r * C;
        float sum, squares;
        moments(x, C, 0.0f, &sum, &squares);
        const float mean = sum / count;
        moments(x, C, mean, &sum, &squares);
        const float e = sum / count, var = squares / count - e * e;
        const float inv_std = 1.0f / ln_sqrtf((var > 0.0f ? var : 0.0f) + a.eps);

        for (size_t first = 0; first < C; first += LN_LANES) {
            const size_t live = ln_live_lanes(C, first);
            float t[LN_LANES], gamma[LN_LANES], beta[LN_LANES];
            ln_get_lanes(t, x + first, live);
            ln_get_weights(gamma, w + first, live);
            ln_get_weights(beta, w + C + first, live);
            for (int k = 0; k < LN_LANES; k++) t[k] = ((t[k] - mean) - e) * inv_std * gamma[k] + beta[k];
            ln_put_lanes(y + first, t, live);
        }
    }
}

uint64_t ln_layernorm_macs(const ln_call *c)
{
    return (uint64_t)c->in[0].elements * 2;
}
