/* quantize   y = z + x / scale, rounded to the nearest, halves away from zero; NaN gives z
 * x f32, y i8, of one shape   Cost n multiplications. y may not overlap x. */
#include "ln_int8.h"
#include "ln_shapes.h"

#ifdef LN_WITH_QUANTIZE

ln_status ln_quantize_check(const ln_call *c)
{
    return ln_same_shape(&c->in[0], &c->out) ? ln_check_rest(c, 0) : LN_BAD_SHAPE;
}

void ln_quantize_run(const ln_call *c)
{
    const ln_quant q = ln_quant_of(c->op.attrs);
    const float inverse = 1.0f / c->out.scale;
    for (size_t i = 0; i < c->out.elements; i++)
        c->qy[i] = ln_held(&q, c->out.zero_point, ln_rounded(c->x[0][i] * inverse));
}

uint64_t ln_quantize_macs(const ln_call *c)
{
    (void)c;
    return 0;
}

#endif
