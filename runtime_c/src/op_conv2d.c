/* conv2d   y[i,j,o] = act(b[o] + sum_uvc x[i*s+u*d-top, j*s+v*d-left, c] w[o,u,v,c]), zero outside the image
 * x (H,W,C)  y (Ho,Wo,O)  w panels over (u,v,c), group after group; group g sees C/groups channels of x and makes
 * O/groups of y.   Cost Ho*Wo*O*kh*kw*C/groups multiply-accumulates. y may not overlap x.
 *
 * Four positions at a time are four rows of a matrix product. The spans of a row are the pixels under the taps, where
 * they lie in the image; taps outside it see ZEROS. No copy of the windows is made. */
#include "ln_wino.h"

#ifdef LN_SMALL
enum { ZERO_COUNT = 16 };
#else
enum { ZERO_COUNT = 128 };
#endif
static const float ZEROS[ZERO_COUNT];

static void decode(const ln_call *c, ln_conv2d_attrs *a, ln_window *g)
{
    ln_conv2d_decode(c->op.attrs, a);
    *g = ln_window_of(c, a->kernel_size, a->stride, a->padding, a->dilation);
}

ln_status ln_conv2d_check(const ln_call *c)
{
    ln_conv2d_attrs a;
    ln_window g;
    decode(c, &a, &g);
    if (!ln_window_holds(c, &g)) return LN_BAD_SHAPE;
    const uint32_t groups = (uint32_t)a.groups, C = c->in[0].dims[2], O = c->out.dims[2];
    if (C % groups || O % groups) return LN_BAD_SHAPE;
    const uint64_t K = (uint64_t)(g.kh * g.kw) * (C / groups);
    uint64_t bytes = groups * ln_panels_bytes(O / groups, K, c->op.weight_dtype);
#ifndef LN_TERSE /* which takes algorithm 0 only */
    if (c->op.algorithm) {
        if (c->op.algorithm > 2 || c->op.weight_dtype != LN_F32 || !ln_wino_suits(c->op.attrs, C, O)) return LN_BAD_ALGORITHM;
        if (bytes >> 32 == 0) bytes += ln_wino_stored_bytes(c->op.algorithm, C, O);
    }
#endif
    return ln_check_rest(c, bytes);
}

typedef struct positions { /* up to four positions of the window, seen by one group */
    const ln_window *g;
    const float *x;        /* the group's first channel of pixel (0,0) */
    uint32_t channels;     /* of the group */
    int32_t i[LN_ROWS], j[LN_ROWS]; /* pixel of tap (0,0) */
    int inside;            /* 1: no tap of any of them is outside the image */
} positions;

static const float *pixel(const positions *p, int m, int32_t u, int32_t v) /* under tap (u,v) of position m */
{
    const ln_window *g = p->g;
    const int32_t i = p->i[m] + u * g->dh, j = p->j[m] + v * g->dw;
    if (i < 0 || i >= g->H || j < 0 || j >= g->W) return NULL;
    return p->x + ((size_t)i * (size_t)g->W + (size_t)j) * (size_t)g->C;
}

/* The whole list at once, where no tap is outside. Neighbouring taps of a kernel row are one span if they see memory
 * without a gap. */
static uint32_t list_inside(const positions *p, ln_spans *list)
{
    const ln_window *g = p->g;
    const int32_t joined = g->dw == 1 && p->channels == (uint32_t)g->C ? g->kw : 1;
    if (g->kh * (g->kw / joined) > LN_SPANS) return 0;
    ln_span *s = list->span;
    for (int32_t u = 0; u < g->kh; u++)
        for (int32_t v = 0; v < g->kw; v += joined, s++) {
            s->n = p->channels * (uint32_t)joined;
            for (int m = 0; m < LN_ROWS; m++) s->x[m] = pixel(p, m, u, v);
        }
    list->count = (uint32_t)(s - list->span);
    return p->channels * (uint32_t)(g->kh * g->kw);
}

static uint32_t list_taps(void *source, uint32_t k, ln_spans *list)
{
    const positions *p = source;
    const ln_window *g = p->g;
    const uint32_t all = p->inside && k == 0 ? list_inside(p, list) : 0;
    if (all) return all;

    uint32_t c = k % p->channels;
    list->count = 0;
    for (int32_t tap = (int32_t)(k / p->channels); tap < g->kh * g->kw; tap++, c = 0) {
        const float *x[LN_ROWS];
        int outside = 0;
        for (int m = 0; m < LN_ROWS; m++) {
            x[m] = pixel(p, m, tap / g->kw, tap % g->kw);
            outside |= x[m] == NULL;
        }
        for (uint32_t n; c < p->channels; c += n, k += n) {
            if (list->count == LN_SPANS) return k;
            ln_span *s = &list->span[list->count++];
            n = p->channels - c;
            if (outside && n > ZERO_COUNT) n = ZERO_COUNT;
            s->n = n;
            for (int m = 0; m < LN_ROWS; m++) s->x[m] = x[m] ? x[m] + c : ZEROS;
        }
    }
    return k;
}

void ln_conv2d_run(const ln_call *c)
{
    ln_conv2d_attrs a;
    ln_window g;
    decode(c, &a, &g);
    const uint32_t groups = (uint32_t)a.groups, C = (uint32_t)g.C / groups, O = c->out.dims[2] / groups;
    const ln_panels p = {O, (uint32_t)(g.kh * g.kw) * C, c->op.weight_dtype, c->op.activation, a.alpha};
    const size_t group_bytes = (size_t)ln_panels_bytes(O, p.K, p.dtype);
    const uint32_t count = (uint32_t)g.Ho * (uint32_t)g.Wo;
    positions at;
    at.g = &g;
    at.channels = C;
    const int32_t reach_i = g.H - (g.kh - 1) * g.dh, reach_j = g.W - (g.kw - 1) * g.dw;

    int32_t i = -g.top, j = -g.left, left = g.Wo; /* the next position, and how many its row still has */
    for (uint32_t first = 0; first < count; first += LN_ROWS) {
        const uint32_t rows = count - first < LN_ROWS ? count - first : LN_ROWS;
        at.inside = 1;
        for (uint32_t m = 0; m < LN_ROWS; m++) {
            at.i[m] = m < rows ? i : at.i[0];
            at.j[m] = m < rows ? j : at.j[0];
            at.inside &= at.i[m] >= 0 && at.i[m] < reach_i && at.j[m] >= 0 && at.j[m] < reach_j;
            j += g.sw;
            if (--left == 0) {
                left = g.Wo;
                i += g.sh;
                j = -g.left;
            }
        }
        for (uint32_t group = 0; group < groups; group++) {
            float *y[LN_ROWS];
            for (uint32_t m = 0; m < LN_ROWS; m++)
                y[m] = c->y + (size_t)(first + (m < rows ? m : 0)) * c->out.dims[2] + group * O;
            at.x = c->x[0] + group * C;
            ln_panels_run(&p, c->w + group * group_bytes, list_taps, &at, rows, y);
        }
    }
}

uint64_t ln_conv2d_macs(const ln_call *c)
{
    ln_conv2d_attrs a;
    ln_window g;
    decode(c, &a, &g);
    return (uint64_t)c->out.elements * (uint32_t)(g.kh * g.kw) * (c->in[0].dims[2] / (uint32_t)a.groups);
}
