/* depthwise_conv2d on int8   y[i,j,c] = z + requant(B[c] + sum_uv x[i*s+u*d-top, j*s+v*d-left, c] w[u,v,c], M[c]), the
 * zero point of x outside the image
 * x, y as in op_depthwise_conv2d.c   w depthwise8   Cost Ho*Wo*C*kh*kw multiply-accumulates. y may not overlap x. */
#include "ln_panels_i8.h"
#include "ln_shapes.h"

#ifdef LN_WITH_I8

/* One position, the `live` channels of a panel from x on; i, j: pixel of tap (0,0). */
static void position(const ln_panels_i8 *p, const ln_window *g, const uint8_t *w, const int8_t *x, int32_t zx, int32_t i,
                     int32_t j, uint32_t live, int8_t *y)
{
    const uint32_t width = (live + 3) / 4 * 4;
    const int8_t *v = (const int8_t *)w + 8 * (size_t)width;
    uint32_t sum[LN_PANEL];
    for (uint32_t k = 0; k < live; k++) sum[k] = ln_u32(w + 4 * k);
    for (int32_t a = 0; a < g->kh; a++, i += g->dh)
        for (int32_t b = 0, jb = j; b < g->kw; b++, jb += g->dw, v += width) {
            if (i < 0 || i >= g->H || jb < 0 || jb >= g->W) {
                for (uint32_t k = 0; k < live; k++) sum[k] += (uint32_t)(zx * v[k]);
                continue;
            }
            const int8_t *seen = x + ((size_t)i * (size_t)g->W + (size_t)jb) * (size_t)g->C;
            for (uint32_t k = 0; k < live; k++) sum[k] += (uint32_t)(seen[k] * v[k]);
        }
    for (uint32_t k = 0; k < live; k++) y[k] = ln_finished_i8(p, sum[k], ln_i32(w + 4 * (size_t)(width + k)));
}

void ln_depthwise_conv2d_i8_run(const ln_call *c)
{
    ln_depthwise_conv2d_attrs a;
    ln_depthwise_conv2d_decode(c->op.attrs, &a);
    const ln_window g = ln_window_of(c, a.kernel_size, a.stride, a.padding, a.dilation);
    const ln_panels_i8 p = {0, 0, c->out.zero_point, ln_quant_of(c->op.attrs)};
    const uint32_t C = (uint32_t)g.C;
    const uint8_t *w = c->w;

    for (uint32_t first = 0; first < C; first += LN_PANEL) {
        const uint32_t live = C - first < LN_PANEL ? C - first : LN_PANEL;
        int8_t *y = c->qy + first;
        for (int32_t i = 0; i < g.Ho; i++)
            for (int32_t j = 0; j < g.Wo; j++, y += C)
                position(&p, &g, w, c->qx[0] + first, c->in[0].zero_point, i * g.sh - g.top, j * g.sw - g.left, live, y);
        w += ln_panel_i8_bytes((live + 3) / 4 * 4, (uint32_t)(g.kh * g.kw));
    }
}

#endif
