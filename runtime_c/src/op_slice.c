/* slice   y[.., i, ..] = x[.., begin + i step, ..] along one axis, 0 <= i < size
 * Cost one copy for each of y. y may not overlap x. */
#include "ln_cold.h"
#include "ln_move.h"
#include "ln_shapes.h"

#ifdef LN_WITH_SLICE

ln_status ln_slice_check(const ln_call *c)
{
    ln_slice_attrs a;
    ln_slice_decode(c->op.attrs, &a);
    const uint32_t axis = (uint32_t)a.axis;
    if (c->out.rank != c->in[0].rank || axis >= c->out.rank) return LN_BAD_SHAPE;
    for (uint32_t k = 0; k < c->out.rank; k++)
        if (c->out.dims[k] != (k == axis ? (uint32_t)a.size : c->in[0].dims[k])) return LN_BAD_SHAPE;
    if ((uint64_t)a.begin + ((uint64_t)a.size - 1) * (uint64_t)a.step >= c->in[0].dims[axis]) return LN_BAD_SHAPE;
    return ln_check_rest(c, 0);
}

size_t ln_slice_move(const ln_call *c, ln_move *m)
{
    ln_slice_attrs a;
    ln_slice_decode(c->op.attrs, &a);
    size_t dims[4];
    const uint32_t axis = (uint32_t)a.axis + ln_four_dims(&c->in[0], dims);
    ln_four_steps(dims, m->xs);
    ln_four_dims(&c->out, m->n);
    ln_four_steps(m->n, m->ys);
    const size_t first = (size_t)a.begin * m->xs[axis];
    m->xs[axis] *= (size_t)a.step;
    return first;
}

void ln_slice_run(const ln_call *c)
{
    ln_move m;
    const size_t first = ln_slice_move(c, &m);
    ln_move_values(&m, c->x[0] + first, c->y);
}

uint64_t ln_slice_macs(const ln_call *c)
{
    (void)c;
    return 0;
}

#endif

#include "ln_cold_end.h"
