/* activation   y = act(x)
 * x and y of one shape   Cost n activations. y may be x. */
#include "ln_lanes.h"
#include "ln_shapes.h"

ln_status ln_activation_check(const ln_call *c)
{
    return ln_same_shape(&c->in[0], &c->out) ? ln_check_rest(c, ln_is_i8(c) ? 256 : 0) : LN_BAD_SHAPE;
}

void ln_activation_run(const ln_call *c)
{
    ln_activation_attrs a;
    ln_activation_decode(c->op.attrs, &a);
    const size_t n = c->out.elements;
    for (size_t i = 0; i < n; i += LN_LANES) {
        const size_t live = ln_live_lanes(n, i);
        float t[LN_LANES];
        ln_get_lanes(t, c->x[0] + i, live);
        ln_activate(c->op.activation, a.alpha, t, LN_LANES);
        ln_put_lanes(c->y + i, t, live);
    }
}

uint64_t ln_activation_macs(const ln_call *c)
{
    (void)c;
    return 0;
}
