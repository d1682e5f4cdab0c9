/* softmax on int8   y[..,c] = min(127, (256 T[m - x[..,c]] + sum / 2) / sum - 128), m = max_c x, sum = sum_c T[m - x]
 * x, y (..,C), each row on its own, C < 2^15   w T[n], uint16, T[d] = 65535 e^(-scale d), T[0] > 0, n <= 256; T[d] = 0
 * behind the last
 * Cost n table look-ups, twice, and n divisions. y may be x. */
#include "ln_int8.h"

#ifdef LN_WITH_I8

static uint32_t look_up(const ln_call *c, int32_t d)
{
    return (uint32_t)d < c->op.weights_bytes / 2 ? ln_u16(c->w + 2 * d) : 0;
}

void ln_softmax_i8_run(const ln_call *c)
{
    const size_t C = c->in[0].dims[c->in[0].rank - 1], n = c->in[0].elements;
    for (size_t row = 0; row < n; row += C) {
        const int8_t *x = c->qx[0] + row;
        int8_t *y = c->qy + row;
        int8_t m = x[0];
        uint32_t sum = 0;
        for (size_t k = 1; k < C; k++)
            if (x[k] > m) m = x[k];
        for (size_t k = 0; k < C; k++) sum += look_up(c, m - x[k]);
        for (size_t k = 0; k < C; k++) {
            const uint32_t share = (256 * look_up(c, m - x[k]) + sum / 2) / sum;
            y[k] = (int8_t)(share > 255 ? 127 : (int32_t)share - 128);
        }
    }
}

#endif
