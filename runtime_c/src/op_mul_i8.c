/* mul on int8   y = z + requant((x - z1) (x2 - z2), M1), x2 starting over where it is a row
 * x, y (..,C)   x2 as x, or (C)   Cost 2 n multiplications. y may be x, and x2 where it has as many values. */
#include "ln_int8.h"

#if defined(LN_WITH_I8) && defined(LN_WITH_MUL)

void ln_mul_i8_run(const ln_call *c)
{
    const ln_quant q = ln_quant_of(c->op.attrs);
    const int32_t z1 = c->in[0].zero_point, z2 = c->in[1].zero_point;
    const size_t n = c->in[0].elements, again = c->in[1].elements;
    for (size_t first = 0; first < n; first += again)
        for (size_t i = 0; i < again; i++) {
            const int32_t product = (c->qx[0][first + i] - z1) * (c->qx[1][i] - z2);
            c->qy[first + i] = ln_held(&q, c->out.zero_point, ln_requant(product, q.m1, 0));
        }
}

#endif
