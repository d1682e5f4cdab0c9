/* unary   y = e^x, or the root of max(x, 0), or 1 / x
 * x and y of one shape   Cost n of these. y may be x. */
#include "ln_lanes.h"
#include "ln_math.h"
#include "ln_shapes.h"

#ifdef LN_WITH_UNARY

enum { EXP = 0, SQRT = 1 }; /* function */

ln_status ln_unary_check(const ln_call *c)
{
    return ln_same_shape(&c->in[0], &c->out) ? ln_check_rest(c, ln_is_i8(c) ? 256 : 0) : LN_BAD_SHAPE;
}

void ln_unary_run(const ln_call *c)
{
    ln_unary_attrs a;
    ln_unary_decode(c->op.attrs, &a);
    const size_t n = c->out.elements;
    for (size_t i = 0; i < n; i += LN_LANES) {
        const size_t live = ln_live_lanes(n, i);
        float t[LN_LANES];
        ln_get_lanes(t, c->x[0] + i, live);
        if (a.function == EXP)
            ln_exp_lanes(t);
        else if (a.function == SQRT)
            for (int k = 0; k < LN_LANES; k++) t[k] = ln_sqrtf(t[k] < 0.0f ? 0.0f : t[k]);
        else
            for (int k = 0; k < LN_LANES; k++) t[k] = 1.0f / t[k];
        ln_put_lanes(c->y + i, t, live);
    }
}

uint64_t ln_unary_macs(const ln_call *c)
{
    (void)c;
    return 0;
}

#endif
