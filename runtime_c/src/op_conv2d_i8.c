/* conv2d on int8   y[i,j,o] = z + requant(B[o] + sum_uvc x[i*s+u*d-top, j*s+v*d-left, c] w[o,u,v,c], M[o], S), the zero
 * point of x outside the image
 * x, y as in op_conv2d.c   w panels8 over (u,v,c), group after group   Cost Ho*Wo*O*kh*kw*C/groups
 * multiply-accumulates. y may not overlap x.
 *
 * LN_ROWS positions at a time are the rows of a matrix product. The pixels under the taps are read where they lie, if
 * they are whole groups of four values and inside the image; else they are gathered, a few at a time. */
#include "ln_dsp.h"
#include "ln_panels_i8.h"
#include "ln_shapes.h"

#ifdef LN_WITH_I8

typedef struct place { /* a value of a row: channel c of tap (u,v) */
    int32_t u, v;
    uint32_t c;
} place;

typedef struct positions { /* some positions of the window, seen by one group */
    const ln_window *g;
    const int8_t *x;       /* the group's first channel of pixel (0,0) */
    uint32_t channels;     /* of the group */
    int32_t joined;        /* taps of a kernel row that lie one behind the other: 1, or all */
    int8_t z;              /* what is seen outside */
    place at;              /* where the next fetch begins */
    int32_t i[LN_ROWS], j[LN_ROWS]; /* pixel of tap (0,0) */
} positions;

static const int8_t *pixel(const positions *p, uint32_t m, int32_t u, int32_t v) /* under tap (u,v); NULL: none */
{
    const ln_window *g = p->g;
    const int32_t i = p->i[m] + u * g->dh, j = p->j[m] + v * g->dw;
    if (i < 0 || i >= g->H || j < 0 || j >= g->W) return NULL;
    return p->x + ((size_t)i * (size_t)g->W + (size_t)j) * (size_t)g->C;
}

/* The values from `at` on that lie in one piece for position m, *x the first; or as many outside, *x NULL. */
static uint32_t run_of(const positions *p, uint32_t m, const place *at, const int8_t **x)
{
    int32_t taps = p->joined > 1 ? p->joined - at->v : 1;
    const int8_t *first = pixel(p, m, at->u, at->v);
    if (taps > 1 && (first == NULL || pixel(p, m, at->u, at->v + taps - 1) == NULL)) taps = 1;
    *x = first ? first + at->c : NULL;
    return (uint32_t)taps * p->channels - at->c;
}

static void advance(const positions *p, place *at, uint32_t n) /* by no more than a run */
{
    for (at->c += n; at->c >= p->channels; at->c -= p->channels) at->v++;
    if (at->v < p->g->kw) return;
    at->v = 0;
    at->u++;
}

static void gather(const positions *p, uint32_t m, place *at, uint32_t n, int8_t *to)
{
    for (uint32_t left = n, run; left; left -= run) {
        const int8_t *x;
        run = run_of(p, m, at, &x);
        if (run > left) run = left;
        const int8_t *from = x ? x : &p->z;
        const int8_t *const end = to + run;
#ifdef LN_DSP
        const int8x4_t zs = (int8x4_t)(0x01010101u * (uint8_t)p->z);
        for (; end - to >= 4; to += 4, from += x ? 4 : 0) ln_put_four(to, x ? ln_four(from) : zs);
#endif
        for (; to != end; from += x != NULL) *to++ = *from;
        advance(p, at, run);
    }
}

static uint32_t fetch(void *source, uint32_t k, ln_piece *piece)
{
    positions *p = source;
    const place begin = {0, 0, 0};
    if (k == 0) p->at = begin;

    uint32_t n = run_of(p, 0, &p->at, &piece->x[0]);
    int whole = n % 4 == 0 && piece->x[0] != NULL;
    for (uint32_t m = 1; m < LN_ROWS; m++) whole &= run_of(p, m, &p->at, &piece->x[m]) == n && piece->x[m] != NULL;
    if (whole) {
        advance(p, &p->at, n);
        return n;
    }
    const uint32_t left = (uint32_t)(p->g->kh * p->g->kw) * p->channels - k;
    place next = p->at;
    n = left < LN_HELD ? left : LN_HELD;
    for (uint32_t m = 0; m < LN_ROWS; m++) {
        next = p->at;
        gather(p, m, &next, n, piece->held[m]);
        for (uint32_t i = n; i % 4; i++) piece->held[m][i] = 0;
        piece->x[m] = piece->held[m];
    }
    p->at = next;
    return n;
}

static ln_window decode(const ln_call *c, uint32_t *groups)
{
    ln_conv2d_attrs a;
    ln_conv2d_decode(c->op.attrs, &a);
    *groups = (uint32_t)a.groups;
    return ln_window_of(c, a.kernel_size, a.stride, a.padding, a.dilation);
}

void ln_conv2d_i8_run(const ln_call *c)
{
    uint32_t groups;
    const ln_window g = decode(c, &groups);
    const uint32_t C = (uint32_t)g.C / groups, O = c->out.dims[2] / groups;
    const ln_panels_i8 p = {O, (uint32_t)(g.kh * g.kw) * C, c->out.zero_point, ln_quant_of(c->op.attrs)};
    const size_t group_bytes = (size_t)ln_panels_bytes(O, p.K, LN_I8);
    const uint32_t count = (uint32_t)g.Ho * (uint32_t)g.Wo;
    positions at = {&g, NULL, C, g.dw == 1 && groups == 1 ? g.kw : 1, (int8_t)c->in[0].zero_point, {0, 0, 0}, {0}, {0}};

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
