/* prelu on int8   y[..,c] = z + (x[..,c] - zx) M / 2^S, M being M1 where x >= zx and M[c] below
 * x, y (..,C)   w M[C], int32   Cost n compares and multiplications. y may be x. */
#include "ln_int8.h"

#if defined(LN_WITH_I8) && defined(LN_WITH_PRELU)

void ln_prelu_i8_run(const ln_call *c)
{
    const ln_quant q = ln_quant_of(c->op.attrs);
    const size_t C = c->in[0].dims[c->in[0].rank - 1], n = c->in[0].elements;
    for (size_t k = 0; k < C; k++) {
        const int32_t below = ln_i32(c->w + 4 * k);
        for (size_t i = k; i < n; i += C) {
            const int32_t v = c->qx[0][i] - c->in[0].zero_point;
            c->qy[i] = ln_held(&q, c->out.zero_point, ln_rescale(v, v >= 0 ? q.m1 : below, q.shift));
        }
    }
}

#endif
