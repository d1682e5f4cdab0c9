/* linear   y[m][o] = act(b[o] + sum_i x[m][i] w[o][i])
 * x (M,I) and y (M,O); or y (O), and x of any shape is one row of I values: a flatten before it is not needed
 * w panels over i   Cost M*O*I multiply-accumulates; each weight is read once for four rows. y may not overlap x. */
#include "ln_panels.h"
#include "ln_shapes.h"

static uint32_t row_length(const ln_call *c) /* I */
{
    return c->out.rank == 2 ? c->in[0].dims[1] : c->in[0].elements;
}

ln_status ln_linear_check(const ln_call *c)
{
    const ln_tensor *x = &c->in[0], *y = &c->out;
    if (y->rank > 2 || (y->rank == 2 && (x->rank != 2 || y->dims[0] != x->dims[0]))) return LN_BAD_SHAPE;
    return ln_check_rest(c, ln_panels_bytes(y->dims[y->rank - 1], row_length(c), c->op.weight_dtype));
}

typedef struct rows {
    const float *x[LN_ROWS];
    uint32_t I;
} rows;

static uint32_t list_rows(void *source, uint32_t k, ln_spans *list) /* each row is one span */
{
    const rows *r = source;
    (void)k;
    list->count = 1;
    list->span[0].n = r->I;
    for (uint32_t m = 0; m < LN_ROWS; m++) list->span[0].x[m] = r->x[m];
    return r->I;
}

void ln_linear_run(const ln_call *c)
{
    ln_linear_attrs a;
    ln_linear_decode(c->op.attrs, &a);
    const uint32_t I = row_length(c), O = c->out.dims[c->out.rank - 1];
    const uint32_t M = c->in[0].elements / I;
    const ln_panels p = {O, I, c->op.weight_dtype, c->op.activation, a.alpha};

    for (uint32_t first = 0; first < M; first += LN_ROWS) {
        const uint32_t count = M - first < LN_ROWS ? M - first : LN_ROWS;
        rows r;
        float *y[LN_ROWS];
        r.I = I;
        for (uint32_t m = 0; m < LN_ROWS; m++) {
            const size_t row = first + (m < count ? m : 0);
            r.x[m] = c->x[0] + row * I;
            y[m] = c->y + row * O;
        }
        ln_panels_run(&p, c->w, list_rows, &r, count, y);
    }
}

uint64_t ln_linear_macs(const ln_call *c)
{
    return (uint64_t)c->in[0].elements * c->out.dims[c->out.rank - 1];
}
