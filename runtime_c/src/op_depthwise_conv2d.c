/* depthwise_conv2d   y[i,j,c] = act(b[c] + sum_uv x[i*s+u*d-top, j*s+v*d-left, c] w[u,v,c]), zero outside the image
 * x (H,W,C)  y (Ho,Wo,C)   w channels in panels of 16, over (u,v)   Cost Ho*Wo*C*kh*kw multiply-accumulates.
 * y may not overlap x.
 *
 * Panel after panel, so that a panel's weights are read, and decoded, once. They wait on the stack in blocks of up to
 * 32 taps; a larger kernel takes several passes over y, which then carries the sums. */
#include "ln_lanes.h"
#include "ln_panels.h"
#include "ln_shapes.h"

enum { BLOCK = 32, TOGETHER = 4 }; /* taps of a block; positions activated together */

static ln_window decode(const ln_call *c, float *alpha)
{
    ln_depthwise_conv2d_attrs a;
    ln_depthwise_conv2d_decode(c->op.attrs, &a);
    *alpha = a.alpha;
    return ln_window_of(c, a.kernel_size, a.stride, a.padding, a.dilation);
}

ln_status ln_depthwise_conv2d_check(const ln_call *c)
{
    float alpha;
    const ln_window g = decode(c, &alpha);
    if (!ln_window_holds(c, &g) || c->out.dims[2] != c->in[0].dims[2]) return LN_BAD_SHAPE;
    const uint32_t C = c->in[0].dims[2], taps = (uint32_t)(g.kh * g.kw);
    if (ln_is_i8(c)) return ln_check_rest(c, ((uint64_t)C + 3) / 4 * 4 * (8 + (uint64_t)taps));
    return ln_check_rest(c, ln_panels_bytes(C, taps, c->op.weight_dtype));
}

typedef struct block { /* the taps u0 <= u < u1, v0 <= v < v1 of one panel */
    int32_t u0, u1, v0, v1;
    float w[BLOCK * LN_PANEL];
} block;

/* sum[j] += what the block's taps inside the image see of `live` channels from x on; i, j: pixel of tap (0,0). */
static void add_taps(float *sum, const ln_window *g, const block *b, const float *x, int32_t i, int32_t j,
                     uint32_t live)
{
    const ln_taps rows = ln_taps_inside(i, g->dh, g->kh, g->H), columns = ln_taps_inside(j, g->dw, g->kw, g->W);
    const int32_t first_u = rows.first > b->u0 ? rows.first : b->u0, end_u = rows.end < b->u1 ? rows.end : b->u1;
    const int32_t first_v = columns.first > b->v0 ? columns.first : b->v0;
    const int32_t end_v = columns.end < b->v1 ? columns.end : b->v1;
    const size_t step = (size_t)g->dw * (size_t)g->C;
    ln_vec8 s0 = ln_load8(sum), s1 = ln_load8(sum + 8);

    for (int32_t u = first_u; u < end_u && first_v < end_v; u++) {
        const size_t pixel = (size_t)(i + u * g->dh) * (size_t)g->W + (size_t)(j + first_v * g->dw);
        const float *seen = x + pixel * (size_t)g->C;
        const float *w = b->w + ((u - b->u0) * (b->v1 - b->v0) + (first_v - b->v0)) * LN_PANEL;
        if (live == LN_PANEL)
            for (int32_t v = first_v; v < end_v; v++, seen += step, w += LN_PANEL) {
                s0 = ln_mul_add8(s0, ln_load8(seen), ln_load8(w));
                s1 = ln_mul_add8(s1, ln_load8(seen + 8), ln_load8(w + 8));
            }
        else
            for (int32_t v = first_v; v < end_v; v++, seen += step, w += LN_PANEL)
                for (uint32_t c = 0; c < live; c++) sum[c] += seen[c] * w[c];
    }
    if (live == LN_PANEL) {
        ln_store8(sum, s0);
        ln_store8(sum + 8, s1);
    }
}

/* One pass over y for one block of the panel that begins with channel `first`. */
static void run_block(const ln_call *c, const ln_window *g, const block *b, const float *bias, float alpha,
                      uint32_t first, uint32_t live, int last)
{
    const float *x = c->x[0] + first;
    const size_t C = (size_t)g->C;
    const int begins = b->u0 == 0 && b->v0 == 0;
    for (int32_t i = 0; i < g->Ho; i++)
        for (int32_t j0 = 0; j0 < g->Wo; j0 += TOGETHER) {
            const int32_t count = g->Wo - j0 < TOGETHER ? g->Wo - j0 : TOGETHER;
            float *y = c->y + ((size_t)i * (size_t)g->Wo + (size_t)j0) * C + first;
            float sum[TOGETHER * LN_PANEL] = {0};
            for (int32_t m = 0; m < count; m++) {
                float *s = sum + m * LN_PANEL;
                if (begins) ln_put_lanes(s, bias, LN_PANEL);
                else ln_get_lanes(s, y + (size_t)m * C, live);
                add_taps(s, g, b, x, i * g->sh - g->top, (j0 + m) * g->sw - g->left, live);
            }
            if (last) ln_activate(c->op.activation, alpha, sum, TOGETHER * LN_PANEL);
            for (int32_t m = 0; m < count; m++) ln_put_lanes(y + (size_t)m * C, sum + m * LN_PANEL, live);
        }
}

void ln_depthwise_conv2d_run(const ln_call *c)
{
    float alpha;
    const ln_window g = decode(c, &alpha);
    const uint32_t C = (uint32_t)g.C, dtype = c->op.weight_dtype;
    const int32_t columns = g.kw < BLOCK ? g.kw : BLOCK, rows = BLOCK / columns; /* of a block */
    size_t panel = 0; /* index of the panel's first weight */

    for (uint32_t first = 0; first < C; first += LN_PANEL) {
        const uint32_t live = C - first < LN_PANEL ? C - first : LN_PANEL, width = (live + 3) / 4 * 4;
        float bias[LN_PANEL] = {0};
        ln_read_weights(c->w, dtype, panel, bias, width);
        block b;
        for (b.u0 = 0; b.u0 < g.kh; b.u0 = b.u1) {
            b.u1 = b.u0 + rows < g.kh ? b.u0 + rows : g.kh;
            for (b.v0 = 0; b.v0 < g.kw; b.v0 = b.v1) {
                b.v1 = b.v0 + columns < g.kw ? b.v0 + columns : g.kw;
                float *w = b.w;
                for (int32_t u = b.u0; u < b.u1; u++)
                    for (int32_t v = b.v0; v < b.v1; v++, w += LN_PANEL)
                        ln_read_weights(c->w, dtype, panel + (size_t)(1 + u * g.kw + v) * width, w, width);
                run_block(c, &g, &b, bias, alpha, first, live, b.u1 == g.kh && b.v1 == g.kw);
            }
        }
        panel += (size_t)(1 + g.kh * g.kw) * width;
    }
}

uint64_t ln_depthwise_conv2d_macs(const ln_call *c)
{
    float alpha;
    const ln_window g = decode(c, &alpha);
    return (uint64_t)c->out.elements * (uint32_t)(g.kh * g.kw);
}
