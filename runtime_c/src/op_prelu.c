/* prelu   y[..,c] = x[..,c] if x > 0, else slope[c] x[..,c]
 * x, y (..,C)   w slope[C] float32   Cost n compares and multiplications. y may be x. */
#include "ln_lanes.h"
#include "ln_math.h"
#include "ln_shapes.h"

#ifdef LN_WITH_PRELU

ln_status ln_prelu_check(const ln_call *c)
{
    if (!ln_same_shape(&c->in[0], &c->out)) return LN_BAD_SHAPE;
    return ln_check_rest(c, (uint64_t)c->in[0].dims[c->in[0].rank - 1] * 4);
}

void ln_prelu_run(const ln_call *c)
{
    const size_t C = c->in[0].dims[c->in[0].rank - 1], n = c->in[0].elements;
    for (size_t row = 0; row < n; row += C)
        for (size_t first = 0; first < C; first += LN_LANES) {
            const size_t live = ln_live_lanes(C, first);
            float t[LN_LANES], slope[LN_LANES];
            ln_get_lanes(t, c->x[0] + row + first, live);
            ln_get_weights(slope, ln_floats(c->w) + first, live);
            for (int k = 0; k < LN_LANES; k++) t[k] *= ln_select(t[k] > 0.0f, 1.0f, slope[k]);
            ln_put_lanes(c->y + row + first, t, live);
        }
}

uint64_t ln_prelu_macs(const ln_call *c)
{
    (void)c;
    return 0;
}

#endif
