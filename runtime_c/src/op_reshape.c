/* reshape   y = x under another shape, in memory order
 * Nothing to do where the exporter gave both one place; else a copy. y may be x, and may not overlap it otherwise. */
#include "ln_cold.h"
#include "ln_shapes.h"

#ifdef LN_WITH_RESHAPE

ln_status ln_reshape_check(const ln_call *c)
{
    ln_reshape_attrs a;
    ln_reshape_decode(c->op.attrs, &a);
    for (int32_t k = 0; k < 4; k++)
        if ((uint32_t)a.shape[k] != (k < c->out.rank ? c->out.dims[k] : 0)) return LN_BAD_SHAPE;
    return c->out.elements == c->in[0].elements ? ln_check_rest(c, 0) : LN_BAD_SHAPE;
}

void ln_reshape_run(const ln_call *c)
{
    const float *x = c->x[0];
    float *y = c->y;
    if (x == y) return;
    for (uint32_t i = 0; i < c->out.elements; i++) y[i] = x[i];
}

uint64_t ln_reshape_macs(const ln_call *c)
{
    (void)c;
    return 0;
}

#endif

#include "ln_cold_end.h"
