/* add on int8   y = z + ((x - z1) M1 + (x2 - z2) M2) / 2^S
 * x, x2, y of one shape   Cost 2 n multiplications. y may be x or x2 or both. */
#include "ln_int8.h"

#if defined(LN_WITH_I8) && defined(LN_WITH_ADD)

void ln_add_i8_run(const ln_call *c)
{
    const ln_quant q = ln_quant_of(c->op.attrs);
    const int32_t z1 = c->in[0].zero_point, z2 = c->in[1].zero_point;
    const int8_t *x = c->qx[0], *x2 = c->qx[1];
    for (size_t i = 0; i < c->out.elements; i++) {
        const uint32_t sum = (uint32_t)(x[i] - z1) * (uint32_t)q.m1 + (uint32_t)(x2[i] - z2) * (uint32_t)q.m2;
        c->qy[i] = ln_held(&q, c->out.zero_point, ln_shifted(sum, q.shift));
    }
}

#endif
