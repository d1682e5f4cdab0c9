/* maxpool2d on int8   y[i,j,c] = max_uv x[i*s+u-top, j*s+v-left, c] over the taps inside the image
 * avgpool2d on int8   y[i,j,c] = the mean of these, halves up; with count_include_pad each tap outside counts as zx
 * x (H,W,C)  y (Ho,Wo,C)   Cost Ho*Wo*C*kh*kw compares or additions. y may not overlap x. */
#include "ln_int8.h"
#include "ln_shapes.h"

#ifdef LN_WITH_I8

typedef struct seen { /* what a window sees of the image */
    const int8_t *x;      /* first channel of its first pixel inside */
    int32_t rows, columns;
} seen;

static seen look(const ln_call *c, const ln_window *g, int32_t i, int32_t j)
{
    const int32_t top = i * g->sh - g->top, left = j * g->sw - g->left; /* pixel of tap (0,0) */
    const ln_taps u = ln_taps_inside(top, 1, g->kh, g->H), v = ln_taps_inside(left, 1, g->kw, g->W);
    const size_t pixel = (size_t)(top + u.first) * (size_t)g->W + (size_t)(left + v.first);
    const seen s = {c->qx[0] + pixel * (size_t)g->C, u.end - u.first, v.end - v.first};
    return s;
}

void ln_maxpool2d_i8_run(const ln_call *c)
{
    ln_maxpool2d_attrs a;
    ln_maxpool2d_decode(c->op.attrs, &a);
    const ln_window g = ln_window_of(c, a.kernel_size, a.stride, a.padding, NULL);
    const size_t C = (size_t)g.C, line = (size_t)g.W * C;
    int8_t *y = c->qy;
    for (int32_t i = 0; i < g.Ho; i++)
        for (int32_t j = 0; j < g.Wo; j++, y += C) {
            const seen s = look(c, &g, i, j);
            for (size_t k = 0; k < C; k++) y[k] = s.x[k];
            for (int32_t u = 0; u < s.rows; u++)
                for (int32_t v = 0; v < s.columns; v++) {
                    const int8_t *x = s.x + (size_t)u * line + (size_t)v * C;
                    for (size_t k = 0; k < C; k++)
                        if (x[k] > y[k]) y[k] = x[k];
                }
        }
}

void ln_avgpool2d_i8_run(const ln_call *c)
{
    enum { TOGETHER = 16 }; /* channels */
    ln_avgpool2d_attrs a;
    ln_avgpool2d_decode(c->op.attrs, &a);
    const ln_window g = ln_window_of(c, a.kernel_size, a.stride, a.padding, NULL);
    const size_t C = (size_t)g.C, line = (size_t)g.W * C;
    int8_t *y = c->qy;
    for (int32_t i = 0; i < g.Ho; i++)
        for (int32_t j = 0; j < g.Wo; j++, y += C) {
            const seen s = look(c, &g, i, j);
            const int32_t inside = s.rows * s.columns, n = a.count_include_pad ? g.kh * g.kw : inside;
            const int32_t outside = (n - inside) * c->in[0].zero_point;
            for (size_t first = 0; first < C; first += TOGETHER) {
                const size_t live = C - first < TOGETHER ? C - first : TOGETHER;
                int32_t sum[TOGETHER] = {0};
                for (int32_t u = 0; u < s.rows; u++)
                    for (int32_t v = 0; v < s.columns; v++) {
                        const int8_t *x = s.x + first + (size_t)u * line + (size_t)v * C;
                        for (size_t k = 0; k < live; k++) sum[k] += x[k];
                    }
                for (size_t k = 0; k < live; k++) { /* + 256 n: no division of a negative number */
                    const uint32_t twice = (uint32_t)(2 * (sum[k] + outside) + n + 256 * n);
                    y[first + k] = (int8_t)((int32_t)(twice / (2 * (uint32_t)n)) - 128);
                }
            }
        }
}

#endif
