/* batchnorm on int8   y[..,c] = z + ((x[..,c] - zx) M[c] + B[c]) / 2^S
 * x, y (..,C)   w M[C], B[C], int32   Cost n multiply-accumulates. y may be x. */
#include "ln_int8.h"

#ifdef LN_WITH_I8

void ln_batchnorm_i8_run(const ln_call *c)
{
    const ln_quant q = ln_quant_of(c->op.attrs);
    const size_t C = c->in[0].dims[c->in[0].rank - 1], n = c->in[0].elements;
    const int32_t zx = c->in[0].zero_point;
    for (size_t k = 0; k < C; k++) {
        const uint32_t M = ln_u32(c->w + 4 * k), B = ln_u32(c->w + 4 * (C + k));
        for (size_t i = k; i < n; i += C) {
            const uint32_t sum = (uint32_t)(c->qx[0][i] - zx) * M + B;
            c->qy[i] = ln_held(&q, c->out.zero_point, ln_shifted(sum, q.shift));
        }
    }
}

#endif
