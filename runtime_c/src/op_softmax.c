/* softmax   y[..,c] = e^(x[..,c]-m) / sum_c e^(x[..,c]-m), m = max_c x
 * x, y (..,C), each row on its own   Cost n exponentials and divisions, in three passes over a row. y may be x. */
#include "ln_lanes.h"
#include "ln_shapes.h"

ln_status ln_softmax_check(const ln_call *c)
{
    if (!ln_same_shape(&c->in[0], &c->out)) return LN_BAD_SHAPE;
    if (!ln_is_i8(c)) return ln_check_rest(c, 0);
    if (c->out.dims[c->out.rank - 1] > 32767) return LN_BAD_SHAPE;
    return ln_check_rest(c, c->op.weights_bytes > 512 ? 512 : c->op.weights_bytes & ~1u);
}

static float largest(const float *x, size_t C)
{
    float m = x[0];
    for (size_t c = 1; c < C; c++) m = ln_largerf(m, x[c]);
    return m;
}

void ln_softmax_run(const ln_call *c)
{
    const size_t C = c->in[0].dims[c->in[0].rank - 1], rows = c->in[0].elements / C;
    for (size_t r = 0; r < rows; r++) {
        const float *x = c->x[0] + r * C;
        float *y = c->y + r * C;
        const float m = largest(x, C);

        float t[LN_LANES], sums[LN_LANES] = {0}; /* the sum, in parts: sums[k] of every sixteenth value */
        for (size_t first = 0; first < C; first += LN_LANES) {
            const size_t live = ln_live_lanes(C, first);
            ln_get_lanes(t, x + first, live);
            for (int k = 0; k < LN_LANES; k++) t[k] -= m;
            ln_exp_lanes(t);
            ln_put_lanes(y + first, t, live);
            for (size_t k = live; k < LN_LANES; k++) t[k] = 0.0f;
            for (int k = 0; k < LN_LANES; k++) sums[k] += t[k];
        }
        const float sum = ln_sum_lanes(sums);

        for (size_t first = 0; first < C; first += LN_LANES) {
            const size_t live = ln_live_lanes(C, first);
            ln_get_lanes(t, y + first, live);
            for (int k = 0; k < LN_LANES; k++) t[k] /= sum;
            ln_put_lanes(y + first, t, live);
        }
    }
}

uint64_t ln_softmax_macs(const ln_call *c)
{
    (void)c;
    return 0;
}
