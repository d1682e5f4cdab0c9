/* depthwise_conv2d on int8   y[i,j,c] = z + requant(B[c] + sum_uv x[i*s+u*d-top, j*s+v*d-left, c] w[u,v,c], M[c]), the
 * zero point of x outside the image
 * x, y as in op_depthwise_conv2d.c   w depthwise8   Cost Ho*Wo*C*kh*kw multiply-accumulates. y may not overlap x. */
#include "ln_dsp.h"
#include "ln_panels_i8.h"
#include "ln_shapes.h"

#ifdef LN_WITH_I8

/* sum[k] += x[k] w[k] for k < n, channels of one tap; w goes on to the next multiple of 4 */
static void add_tap(uint32_t *sum, const int8_t *x, const int8_t *w, uint32_t n)
{
    uint32_t k = 0;
#ifdef LN_DSP
    for (; k + 4 <= n; k += 4) ln_mac_channels(sum + k, ln_four(x + k), ln_four(w + k));
#endif
    for (; k < n; k++) sum[k] += (uint32_t)(x[k] * w[k]);
}

/* One position, the `live` channels of a panel from x on; i, j: pixel of tap (0,0); outside: what is seen there. */
static void position(const ln_panels_i8 *p, const ln_window *g, const uint8_t *w, const int8_t *x, const int8_t *outside,
                     int32_t i, int32_t j, uint32_t live, int8_t *y)
{
    const uint32_t width = (live + 3) / 4 * 4;
    const int8_t *v = (const int8_t *)w + 8 * (size_t)width;
    uint32_t sum[LN_PANEL];
    for (uint32_t k = 0; k < live; k++) sum[k] = ln_word_at(w + 4 * k);
    for (int32_t a = 0; a < g->kh; a++, i += g->dh)
        for (int32_t b = 0, jb = j; b < g->kw; b++, jb += g->dw, v += width) {
            const int inside = i >= 0 && i < g->H && jb >= 0 && jb < g->W;
            const size_t at = ((size_t)i * (size_t)g->W + (size_t)jb) * (size_t)g->C;
            add_tap(sum, inside ? x + at : outside, v, live);
        }
    for (uint32_t k = 0; k < live; k++) y[k] = ln_finished_i8(p, sum[k], (int32_t)ln_word_at(w + 4 * (size_t)(width + k)));
}

void ln_depthwise_conv2d_i8_run(const ln_call *c)
{
    ln_depthwise_conv2d_attrs a;
    ln_depthwise_conv2d_decode(c->op.attrs, &a);
    const ln_window g = ln_window_of(c, a.kernel_size, a.stride, a.padding, a.dilation);
    const ln_panels_i8 p = {0, 0, c->out.zero_point, ln_quant_of(c->op.attrs)};
    const uint32_t C = (uint32_t)g.C;
    const uint8_t *w = c->w;
    int8_t outside[LN_PANEL];
    for (int k = 0; k < LN_PANEL; k++) outside[k] = (int8_t)c->in[0].zero_point;

    for (uint32_t first = 0; first < C; first += LN_PANEL) {
        const uint32_t live = C - first < LN_PANEL ? C - first : LN_PANEL;
        int8_t *y = c->qy + first;
        for (int32_t i = 0; i < g.Ho; i++)
            for (int32_t j = 0; j < g.Wo; j++, y += C)
                position(&p, &g, w, c->qx[0] + first, outside, i * g.sh - g.top, j * g.sw - g.left, live, y);
        w += ln_panel_i8_bytes((live + 3) / 4 * 4, (uint32_t)(g.kh * g.kw));
    }
}

#endif
