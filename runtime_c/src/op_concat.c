/* concat   y = x, then x2, along one axis
 * x, x2, y of one shape but for that axis   Cost n copies. y may overlap neither. */
#include "ln_cold.h"
#include "ln_move.h"
#include "ln_shapes.h"

#ifdef LN_WITH_CONCAT

static uint32_t axis_of(const ln_call *c)
{
    ln_concat_attrs a;
    ln_concat_decode(c->op.attrs, &a);
    return (uint32_t)a.axis;
}

ln_status ln_concat_check(const ln_call *c)
{
    const uint32_t axis = axis_of(c), rank = c->out.rank;
    if (axis >= rank || c->in[0].rank != rank || c->in[1].rank != rank) return LN_BAD_SHAPE;
    for (uint32_t k = 0; k < rank; k++) {
        const uint32_t x = c->in[0].dims[k], x2 = c->in[1].dims[k]; /* each below 2^30 */
        if (k == axis ? x + x2 != c->out.dims[k] : x != x2 || x != c->out.dims[k]) return LN_BAD_SHAPE;
    }
    return ln_check_rest(c, 0);
}

size_t ln_concat_move(const ln_call *c, uint32_t i, ln_move *m)
{
    size_t dims[4];
    const uint32_t axis = axis_of(c) + ln_four_dims(&c->out, dims);
    ln_four_steps(dims, m->ys);
    ln_four_dims(&c->in[i], m->n);
    ln_four_steps(m->n, m->xs);
    return m->n[axis] * m->ys[axis];
}

void ln_concat_run(const ln_call *c)
{
    float *y = c->y;
    for (uint32_t i = 0; i < 2; i++) {
        ln_move m;
        const size_t next = ln_concat_move(c, i, &m);
        ln_move_values(&m, c->x[i], y);
        y += next;
    }
}

uint64_t ln_concat_macs(const ln_call *c)
{
    (void)c;
    return 0;
}

#endif

#include "ln_cold_end.h"
