/* batchnorm   y[..,c] = act(x[..,c] * scale[c] + shift[c])
 * x, y (..,C)   w scale[C], shift[C] float32, which the exporter makes from gamma, beta, mean and variance
 * Cost n multiply-accumulates. y may be x. */
#include "ln_lanes.h"
#include "ln_shapes.h"

ln_status ln_batchnorm_check(const ln_call *c)
{
    if (!ln_same_shape(&c->in[0], &c->out)) return LN_BAD_SHAPE;
    return ln_check_rest(c, (uint64_t)c->in[0].dims[c->in[0].rank - 1] * 8);
}

void ln_batchnorm_run(const ln_call *c)
{
    ln_batchnorm_attrs a;
    ln_batchnorm_decode(c->op.attrs, &a);
    const size_t C = c->in[0].dims[c->in[0].rank - 1], rows = c->in[0].elements / C;
    for (size_t first = 0; first < C; first += LN_LANES) {
        const size_t live = ln_live_lanes(C, first);
        float scale[LN_LANES], shift[LN_LANES];
        ln_get_weights(scale, ln_floats(c->w) + first, live);
        ln_get_weights(shift, ln_floats(c->w) + C + first, live);
        for (size_t r = 0; r < rows; r++) {
            float t[LN_LANES];
            ln_get_lanes(t, c->x[0] + r * C + first, live);
            for (int k = 0; k < LN_LANES; k++) t[k] = t[k] * scale[k] + shift[k];
            ln_activate(c->op.activation, a.alpha, t, LN_LANES);
            ln_put_lanes(c->y + r * C + first, t, live);
        }
    }
}

uint64_t ln_batchnorm_macs(const ln_call *c)
{
    return c->in[0].elements;
}
