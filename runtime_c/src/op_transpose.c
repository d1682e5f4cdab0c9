/* transpose   y[i_axes[0], i_axes[1], ..] = x[i_0, i_1, ..]
 * Cost one copy for each of y. y may not overlap x. */
#include "ln_cold.h"
#include "ln_move.h"
#include "ln_shapes.h"

#ifdef LN_WITH_TRANSPOSE

ln_status ln_transpose_check(const ln_call *c)
{
    ln_transpose_attrs a;
    uint32_t seen = 0;
    ln_transpose_decode(c->op.attrs, &a);
    if (c->out.rank != c->in[0].rank) return LN_BAD_SHAPE;
    for (int32_t k = 0; k < 4; k++) {
        seen |= 1u << a.axes[k];
        if (k >= c->out.rank ? a.axes[k] != k : c->out.dims[k] != c->in[0].dims[a.axes[k]]) return LN_BAD_SHAPE;
    }
    return seen == 15 ? ln_check_rest(c, 0) : LN_BAD_SHAPE;
}

void ln_transpose_move(const ln_call *c, ln_move *m)
{
    ln_transpose_attrs a;
    ln_transpose_decode(c->op.attrs, &a);
    size_t dims[4], steps[4];
    const uint32_t front = ln_four_dims(&c->in[0], dims);
    ln_four_steps(dims, steps);
    ln_four_dims(&c->out, m->n);
    ln_four_steps(m->n, m->ys);
    for (uint32_t k = 0; k < 4; k++) m->xs[k] = k < front ? 0 : steps[(uint32_t)a.axes[k - front] + front];
}

void ln_transpose_run(const ln_call *c)
{
    ln_move m;
    ln_transpose_move(c, &m);
    ln_move_values(&m, c->x[0], c->y);
}

uint64_t ln_transpose_macs(const ln_call *c)
{
    (void)c;
    return 0;
}

#endif

#include "ln_cold_end.h"
