/* conv2d on int8   y[i,j,o] = z + requant(B[o] + sum_uvc x[i*s+u*d-top, j*s+v*d-left, c] w[o,u,v,c], M[o]), the zero
 * point of x outside the image
 * x, y as in op_conv2d.c   w panels8 over (u,v,c), group after group   Cost Ho*Wo*O*kh*kw*C/groups
 * multiply-accumulates. y may not overlap x.
 *
 * Four positions at a time are four rows of a matrix product. The pixels under the taps are read where they lie, if
 * they are whole groups of four values and inside the image; else they are gathered, a few at a time. */
#include "ln_panels_i8.h"
#include "ln_shapes.h"

#ifdef LN_WITH_I8

typedef struct positions { /* up to four positions of the window, seen by one group */
    const ln_window *g;
    const int8_t *x;       /* the group's first channel of pixel (0,0) */
    uint32_t K, channels;  /* of the group */
    uint32_t joined;       /* taps of a kernel row that lie one behind the other: 1, or all */
    int8_t z;              /* what is seen outside */
    int32_t i[LN_ROWS], j[LN_ROWS]; /* pixel of tap (0,0) */
} positions;

static const int8_t *pixel(const positions *p, uint32_t m, int32_t u, int32_t v) /* under tap (u,v) of position m */
{
    const ln_window *g = p->g;
    const int32_t i = p->i[m] + u * g->dh, j = p->j[m] + v * g->dw;
    if (i < 0 || i >= g->H || j < 0 || j >= g->W) return NULL;
    return p->x + ((size_t)i * (size_t)g->W + (size_t)j) * (size_t)g->C;
}

/* From value k on, as many as lie in one piece for all four positions; 0 if they are no multiple of 4, or outside. */
static uint32_t look(const positions *p, uint32_t k, ln_piece *piece)
{
    const ln_window *g = p->g;
    const uint32_t tap = k / p->channels, c = k % p->channels;
    const int32_t u = (int32_t)(tap / (uint32_t)g->kw), v = (int32_t)(tap % (uint32_t)g->kw);
    const uint32_t taps = p->joined > 1 ? p->joined - (uint32_t)v : 1;
    const uint32_t n = taps * p->channels - c;
    if (n % 4) return 0;
    for (uint32_t m = 0; m < LN_ROWS; m++) {
        const int8_t *x = pixel(p, m, u, v);
        if (x == NULL || pixel(p, m, u, v + (int32_t)taps - 1) == NULL) return 0;
        piece->x[m] = x + c;
    }
    return n;
}

static uint32_t gather(const positions *p, uint32_t k, ln_piece *piece)
{
    const uint32_t n = p->K - k < LN_HELD ? p->K - k : LN_HELD;
    for (uint32_t m = 0; m < LN_ROWS; m++) {
        const ln_window *g = p->g;
        int8_t *to = piece->held[m];
        uint32_t tap = k / p->channels, c = k % p->channels, i = 0;
        for (; i < n; tap++, c = 0) {
            const int8_t *x = pixel(p, m, (int32_t)(tap / (uint32_t)g->kw), (int32_t)(tap % (uint32_t)g->kw));
            for (; i < n && c < p->channels; i++, c++) to[i] = x ? x[c] : p->z;
        }
        for (; i % 4; i++) to[i] = 0;
        piece->x[m] = to;
    }
    return n;
}

static uint32_t fetch(void *source, uint32_t k, ln_piece *piece)
{
    const uint32_t n = look(source, k, piece);
    return n ? n : gather(source, k, piece);
}

void ln_conv2d_i8_run(const ln_call *c)
{
    ln_conv2d_attrs a;
    ln_conv2d_decode(c->op.attrs, &a);
    const ln_window g = ln_window_of(c, a.kernel_size, a.stride, a.padding, a.dilation);
    const uint32_t groups = (uint32_t)a.groups, C = (uint32_t)g.C / groups, O = c->out.dims[2] / groups;
    const ln_panels_i8 p = {O, (uint32_t)(g.kh * g.kw) * C, c->out.zero_point, ln_quant_of(c->op.attrs)};
    const size_t group_bytes = (size_t)ln_panels_bytes(O, p.K, LN_I8);
    const uint32_t count = (uint32_t)g.Ho * (uint32_t)g.Wo;
    positions at = {&g, NULL, p.K, C, g.dw == 1 && groups == 1 ? (uint32_t)g.kw : 1, (int8_t)c->in[0].zero_point,
                    {0}, {0}};

    int32_t i = -g.top, j = -g.left, left = g.Wo; /* the next position, and how many its row still has */
    for (uint32_t first = 0; first < count; first += LN_ROWS) {
        const uint32_t rows = count - first < LN_ROWS ? count - first : LN_ROWS;
        for (uint32_t m = 0; m < LN_ROWS; m++) {
            at.i[m] = m < rows ? i : at.i[0];
            at.j[m] = m < rows ? j : at.j[0];
            j += g.sw;
            if (--left == 0) {
                left = g.Wo;
                i += g.sh;
                j = -g.left;
            }
        }
        for (uint32_t group = 0; group < groups; group++) {
            int8_t *y[LN_ROWS];
            for (uint32_t m = 0; m < LN_ROWS; m++)
                y[m] = c->qy + (size_t)(first + (m < rows ? m : 0)) * c->out.dims[2] + group * O;
            at.x = c->qx[0] + group * C;
            ln_panels_i8_run(&p, c->w + group * group_bytes, fetch, &at, rows, y);
        }
    }
}

#endif
