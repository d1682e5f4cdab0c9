/* pad   y[i + before] = x[i], and value everywhere else
 * y's dims are before + x's + after   Cost one write for each of y. y may not overlap x. */
#include "ln_cold.h"
#include "ln_move.h"
#include "ln_shapes.h"

#ifdef LN_WITH_PAD

ln_status ln_pad_check(const ln_call *c)
{
    ln_pad_attrs a;
    ln_pad_decode(c->op.attrs, &a);
    if (c->out.rank != c->in[0].rank) return LN_BAD_SHAPE;
    for (uint32_t k = 0; k < 4; k++) {
        const uint32_t border = (uint32_t)a.before[k] + (uint32_t)a.after[k];
        if (k >= c->out.rank ? border != 0 : c->in[0].dims[k] + border != c->out.dims[k]) return LN_BAD_SHAPE;
    }
    return ln_check_rest(c, 0);
}

size_t ln_pad_move(const ln_call *c, ln_move *m)
{
    ln_pad_attrs a;
    ln_pad_decode(c->op.attrs, &a);
    size_t dims[4], inside = 0;
    const uint32_t front = ln_four_dims(&c->out, dims);
    ln_four_dims(&c->in[0], m->n);
    ln_four_steps(m->n, m->xs);
    ln_four_steps(dims, m->ys);
    for (uint32_t k = front; k < 4; k++) inside += (size_t)a.before[k - front] * m->ys[k];
    return inside;
}

void ln_pad_run(const ln_call *c)
{
    ln_pad_attrs a;
    ln_pad_decode(c->op.attrs, &a);
    ln_move m;
    const size_t inside = ln_pad_move(c, &m);
    for (size_t i = 0; i < c->out.elements; i++) c->y[i] = a.value;
    ln_move_values(&m, c->x[0], c->y + inside);
}

uint64_t ln_pad_macs(const ln_call *c)
{
    (void)c;
    return 0;
}

#endif

#include "ln_cold_end.h"
