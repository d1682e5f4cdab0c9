/* embed_projection on int8   y[e] = z + requant(B[e] + sum_p w[p,e] sum_c x[p,c], M[e], S); keep_channels: each c alone
 * x, y as in op_embed_projection.c   w panels8 over p   Cost P*E, or P*C*E, multiply-accumulates, and to sum the channels
 * of a pixel again for each panel. y may not overlap x. */
#include "ln_panels_i8.h"
#include "ln_shapes.h"

#ifdef LN_WITH_I8

static int32_t channels_of(const int8_t *x, uint32_t n) /* their sum */
{
    int32_t sum = 0;
    for (uint32_t c = 0; c < n; c++) sum += x[c];
    return sum;
}

/* E results from the pixels x, `pixel` bytes apart, of which `summed` channels count. */
static void project(const ln_panels_i8 *p, const uint8_t *w, const int8_t *x, size_t pixel, uint32_t summed, int8_t *y)
{
    const uint32_t K = (p->K + 3) / 4 * 4;
    for (uint32_t o = 0; o < p->O; o += LN_PANEL) {
        const uint32_t live = p->O - o < LN_PANEL ? p->O - o : LN_PANEL, width = (live + 3) / 4 * 4;
        const int8_t *v = (const int8_t *)w + 8 * (size_t)width;
        uint32_t sum[LN_PANEL];
        for (uint32_t j = 0; j < live; j++) sum[j] = ln_u32(w + 4 * j);
        for (uint32_t k = 0; k < p->K; k++) {
            const uint32_t seen = (uint32_t)channels_of(x + k * pixel, summed);
            const int8_t *four = v + (size_t)(k / 4) * width * 4 + k % 4;
            for (uint32_t j = 0; j < live; j++) sum[j] += seen * (uint32_t)(int32_t)four[4 * j];
        }
        ln_finish_i8(p, sum, w + 4 * (size_t)width, y + o, live);
        w += ln_panel_i8_bytes(width, K);
    }
}

void ln_embed_projection_i8_run(const ln_call *c)
{
    ln_embed_projection_attrs a;
    ln_embed_projection_decode(c->op.attrs, &a);
    const uint32_t C = c->in[0].dims[2], P = c->in[0].dims[0] * c->in[0].dims[1];
    const ln_panels_i8 p = {(uint32_t)a.embed_dim, P, c->out.zero_point, ln_quant_of(c->op.attrs)};

    if (!a.keep_channels) project(&p, c->w, c->qx[0], C, C, c->qy);
    else
        for (uint32_t k = 0; k < C; k++) project(&p, c->w, c->qx[0] + k, C, 1, c->qy + (size_t)k * p.O);
}

#endif
