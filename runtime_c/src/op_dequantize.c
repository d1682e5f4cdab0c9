/* dequantize   y = scale (x - z)
 * x i8, y f32, of one shape   Cost n multiplications. y may not overlap x. */
#include "ln_int8.h"
#include "ln_shapes.h"

#ifdef LN_WITH_DEQUANTIZE

ln_status ln_dequantize_check(const ln_call *c)
{
    return ln_same_shape(&c->in[0], &c->out) ? ln_check_rest(c, 0) : LN_BAD_SHAPE;
}

void ln_dequantize_run(const ln_call *c)
{
    for (size_t i = 0; i < c->out.elements; i++)
        c->y[i] = c->in[0].scale * (float)(c->qx[0][i] - c->in[0].zero_point);
}

uint64_t ln_dequantize_macs(const ln_call *c)
{
    (void)c;
    return 0;
}

#endif
