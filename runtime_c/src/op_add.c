/* add   y = act(x + x2)
 * x, x2, y of one shape   Cost n additions. y may be x or x2 or both. */
#include "ln_lanes.h"
#include "ln_shapes.h"

#ifdef LN_WITH_ADD

ln_status ln_add_check(const ln_call *c)
{
    if (!ln_same_shape(&c->in[0], &c->in[1]) || !ln_same_shape(&c->in[0], &c->out)) return LN_BAD_SHAPE;
    return ln_check_rest(c, 0);
}

void ln_add_run(const ln_call *c)
{
    ln_add_attrs a;
    ln_add_decode(c->op.attrs, &a);
    const size_t n = c->out.elements;
    for (size_t i = 0; i < n; i += LN_LANES) {
        const size_t live = ln_live_lanes(n, i);
        float t[LN_LANES], t2[LN_LANES];
        ln_get_lanes(t, c->x[0] + i, live);
        ln_get_lanes(t2, c->x[1] + i, live);
        for (int k = 0; k < LN_LANES; k++) t[k] += t2[k];
        ln_activate(c->op.activation, a.alpha, t, LN_LANES);
        ln_put_lanes(c->y + i, t, live);
    }
}

uint64_t ln_add_macs(const ln_call *c)
{
    (void)c;
    return 0;
}

#endif
