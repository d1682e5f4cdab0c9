/* flatten   y = x as one row, in memory order
 * x any shape  y (P)   Nothing to do where the exporter gave both one place; else a copy. y may be x, and may not
 * overlap it otherwise. */
#include "ln_cold.h"
#include "ln_shapes.h"

ln_status ln_flatten_check(const ln_call *c)
{
    if (c->out.rank != 1 || c->out.dims[0] != c->in[0].elements) return LN_BAD_SHAPE;
    return ln_check_rest(c, 0);
}

void ln_flatten_run(const ln_call *c)
{
    const float *x = c->x[0];
    float *y = c->y;
    if (x == y) return;
    for (uint32_t i = 0; i < c->out.elements; i++) y[i] = x[i];
}

uint64_t ln_flatten_macs(const ln_call *c)
{
    (void)c;
    return 0;
}

#include "ln_cold_end.h"
