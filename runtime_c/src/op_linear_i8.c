/* linear on int8   y[m][o] = z + requant(B[o] + sum_i x[m][i] w[o][i], M[o], S)
 * x, y as in op_linear.c   w panels8 over i   Cost M*O*I multiply-accumulates. y may not overlap x. */
#include "ln_panels_i8.h"
#include "ln_shapes.h"

#ifdef LN_WITH_I8

#ifdef LN_SMALL
enum { TOGETHER = 1 }; /* rows at once; most nets have one */
#else
enum { TOGETHER = LN_ROWS };
#endif

typedef struct rows {
    const int8_t *x[TOGETHER];
    uint32_t I;
} rows;

static uint32_t fetch(void *source, uint32_t k, ln_piece *p) /* all but the last few lie in groups of four */
{
    const rows *r = source;
    const uint32_t left = r->I - k, n = left < 4 ? left : left / 4 * 4;
    for (uint32_t m = 0; m < TOGETHER; m++) {
        p->x[m] = r->x[m] + k;
        if (left >= 4) continue;
        for (uint32_t i = 0; i < 4; i++) p->held[m][i] = i < n ? p->x[m][i] : 0;
        p->x[m] = p->held[m];
    }
    return n;
}

void ln_linear_i8_run(const ln_call *c)
{
    const uint32_t I = c->out.rank == 2 ? c->in[0].dims[1] : c->in[0].elements, O = c->out.dims[c->out.rank - 1];
    const uint32_t M = c->in[0].elements / I;
    const ln_panels_i8 p = {O, I, c->out.zero_point, ln_quant_of(c->op.attrs)};

    for (uint32_t first = 0; first < M; first += TOGETHER) {
        const uint32_t count = M - first < TOGETHER ? M - first : TOGETHER;
        rows r;
        int8_t *y[LN_ROWS];
        r.I = I;
        for (uint32_t m = 0; m < TOGETHER; m++) {
            const size_t row = first + (m < count ? m : 0);
            r.x[m] = c->qx[0] + row * I;
            y[m] = c->qy + row * O;
        }
        ln_panels_i8_run(&p, c->w, fetch, &r, count, y);
    }
}

#endif
