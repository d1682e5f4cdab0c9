/* activation and unary on int8   y = T[x + 128]
 * x and y of one shape   w T[256], int8   Cost n table look-ups. y may be x. */
#include "ln_int8.h"

#ifdef LN_WITH_I8

void ln_activation_i8_run(const ln_call *c)
{
    const int8_t *table = (const int8_t *)c->w;
    for (size_t i = 0; i < c->out.elements; i++) c->qy[i] = table[c->qx[0][i] + 128];
}

#ifdef LN_WITH_UNARY
void ln_unary_i8_run(const ln_call *c)
{
    ln_activation_i8_run(c);
}
#endif

#endif
