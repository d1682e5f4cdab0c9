/* mul   y = x x2, or y[..,c] = x[..,c] x2[c] where x2 is a row
 * x, y (..,C)   x2 as x, or (C)   Cost n multiplications. y may be x. */
#include "ln_lanes.h"
#include "ln_shapes.h"

#ifdef LN_WITH_MUL

static size_t channels(const ln_call *c)
{
    return c->in[0].dims[c->in[0].rank - 1];
}

ln_status ln_mul_check(const ln_call *c)
{
    const ln_tensor *x2 = &c->in[1];
    const int row = x2->rank == 1 && x2->dims[0] == channels(c);
    if (!ln_same_shape(&c->in[0], &c->out) || !(row || ln_same_shape(&c->in[0], x2))) return LN_BAD_SHAPE;
    return ln_check_rest(c, 0);
}

void ln_mul_run(const ln_call *c)
{
    const size_t C = channels(c), n = c->in[0].elements, again = c->in[1].elements; /* x2 starts over after these */
    for (size_t r = 0; r < n; r += C) {
        const float *x2 = c->x[1] + r % again;
        for (size_t first = 0; first < C; first += LN_LANES) {
            const size_t live = ln_live_lanes(C, first);
            float t[LN_LANES], t2[LN_LANES];
            ln_get_lanes(t, c->x[0] + r + first, live);
            ln_get_lanes(t2, x2 + first, live);
            for (int k = 0; k < LN_LANES; k++) t[k] *= t2[k];
            ln_put_lanes(c->y + r + first, t, live);
        }
    }
}

uint64_t ln_mul_macs(const ln_call *c)
{
    (void)c;
    return 0;
}

#endif
