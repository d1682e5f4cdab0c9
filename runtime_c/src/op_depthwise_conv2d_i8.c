/* depthwise_conv2d on int8   y[i,j,c] = z + requant(B[c] + sum_uv x[i*s+u*d-top, j*s+v*d-left, c] w[u,v,c], M[c], S), the
 * zero point of x outside the image
 * x, y as in op_depthwise_conv2d.c   w depthwise8   Cost Ho*Wo*C*kh*kw multiply-accumulates. y may not overlap x. */
#include "ln_dsp.h"
#include "ln_panels_i8.h"
#include "ln_shapes.h"

#ifdef LN_WITH_I8

typedef struct taps { /* rows of taps: what the first sees, its weights, and the steps from tap to tap and row to row */
    const int8_t *x, *w;
    uint32_t rows, count;
    size_t x_step, x_row, w_step;
} taps;

#ifdef LN_DSP
/* s[c] += sum over the taps of x[k + c] w[k + c], for four channels */
static LN_APART void add_four(uint32_t s[4], const taps *t, uint32_t k)
{
    uint32_t s0 = s[0], s1 = s[1], s2 = s[2], s3 = s[3], rows = t->rows;
    const int8_t *row = t->x + k, *w = t->w + k;
    do {
        const int8_t *x = row;
        uint32_t left = t->count;
        do {
            const int8x4_t v = ln_four(x), u = ln_four(w);
            const int16x2_t v02 = ln_even(v), u02 = ln_even(u);
            s0 = ln_mac_low(s0, v02, u02);
            s2 = ln_mac_high(s2, v02, u02);
            const int16x2_t v13 = ln_odd(v), u13 = ln_odd(u);
            s1 = ln_mac_low(s1, v13, u13);
            s3 = ln_mac_high(s3, v13, u13);
            x += t->x_step;
            w += t->w_step;
        } while (--left);
        row += t->x_row;
    } while (--rows);
    s[0] = s0;
    s[1] = s1;
    s[2] = s2;
    s[3] = s3;
}
#endif

/* sum[k] += x[k] w[k] for k < n: one tap */
static LN_APART void add_tap(uint32_t *sum, const int8_t *x, const int8_t *w, uint32_t n)
{
    for (const uint32_t *end = sum + n; sum != end;) *sum++ += (uint32_t)(*x++ * *w++);
}

/* Adds the taps, of which there is one at least, to the sums of n channels. */
static void add_taps(uint32_t *sum, const taps *t, uint32_t n)
{
    uint32_t k = 0;
#ifdef LN_DSP
    for (; k + 4 <= n; k += 4) add_four(sum + k, t, k);
    if (k == n) return;
#endif
    const int8_t *w = t->w + k;
    for (uint32_t u = 0; u < t->rows; u++) {
        const int8_t *x = t->x + u * t->x_row + k;
        for (uint32_t v = 0; v < t->count; v++, x += t->x_step, w += t->w_step) add_tap(sum + k, x, w, n - k);
    }
}

/* One position, the `live` channels of a panel from x on; i, j: pixel of tap (0,0); outside: what is seen there. */
static void position(const ln_panels_i8 *p, const ln_window *g, const uint8_t *w, const int8_t *x, const int8_t *outside,
                     int32_t i, int32_t j, uint32_t live, int8_t *y)
{
    const uint32_t width = (live + 3) / 4 * 4;
    const size_t C = (size_t)g->C, line = (size_t)g->W * C;
    const ln_taps in_rows = ln_taps_inside(i, g->dh, g->kh, g->H), in_row = ln_taps_inside(j, g->dw, g->kw, g->W);
    uint32_t sum[LN_PANEL];
    taps t = {NULL, (const int8_t *)w + 8 * (size_t)width, 1, 0, 0, (size_t)g->dh * line, width};

    for (uint32_t k = 0; k < width; k++) sum[k] = ln_word_at(w + 4 * (size_t)k);
    for (int32_t u = 0; u < g->kh; u += (int32_t)t.rows) {
        const int inside = u >= in_rows.first && u < in_rows.end && in_row.first < in_row.end;
        const int whole = inside && in_row.first == 0 && in_row.end == g->kw; /* rows that see nothing outside */
        t.rows = whole ? (uint32_t)(in_rows.end - u) : 1;
        for (int32_t v = 0; v < g->kw; v += (int32_t)t.count) {
            const int here = inside && v >= in_row.first && v < in_row.end;
            const int32_t end = here ? in_row.end : inside && v < in_row.first ? in_row.first : g->kw;
            t.count = (uint32_t)(end - v);
            t.x = here ? x + (size_t)(i + u * g->dh) * line + (size_t)(j + v * g->dw) * C : outside;
            t.x_step = here ? (size_t)g->dw * C : 0;
            add_taps(sum, &t, live);
            t.w += (size_t)width * t.count * t.rows;
        }
    }
    ln_finish_i8(p, sum, w + 4 * (size_t)width, y, live);
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
