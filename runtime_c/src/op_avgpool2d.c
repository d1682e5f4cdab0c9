/* avgpool2d   y[i,j,c] = mean_uv x[i*s+u-top, j*s+v-left, c], where pixels outside the image are 0; the divisor is
 * the number of all taps, or without count_include_pad of those inside.
 * x (H,W,C)  y (Ho,Wo,C)   Cost Ho*Wo*C*kh*kw additions. y may not overlap x. */
#include "ln_cold.h" /* rare in the nets this runs, and bound by memory */
#include "ln_math.h"
#include "ln_shapes.h"

static ln_window decode(const ln_call *c, int32_t *count_all)
{
    ln_avgpool2d_attrs a;
    ln_avgpool2d_decode(c->op.attrs, &a);
    *count_all = a.count_include_pad;
    return ln_window_of(c, a.kernel_size, a.stride, a.padding, NULL);
}

ln_status ln_avgpool2d_check(const ln_call *c)
{
    int32_t count_all;
    const ln_window g = decode(c, &count_all);
    return ln_pool_holds(c, &g) ? ln_check_rest(c, 0) : LN_BAD_SHAPE;
}

/* Channels of one window: y[k] for k < live <= LN_LANES, from the taps rows x columns; x: the first channel of the
 * first of them, `row` and `column` floats from one tap to the next. */
static void window(float *y, const float *x, size_t row, size_t column, int32_t rows, int32_t columns, uint32_t live,
                   float count)
{
    float sum[LN_LANES] = {0};
    for (int32_t u = 0; u < rows; u++, x += row) {
        const float *seen = x;
        for (int32_t v = 0; v < columns; v++, seen += column)
            if (live == LN_LANES)
                for (int k = 0; k < LN_LANES; k++) sum[k] += seen[k];
            else
                for (uint32_t k = 0; k < live; k++) sum[k] += seen[k];
    }
    for (uint32_t k = 0; k < live; k++) y[k] = sum[k] / count;
}

void ln_avgpool2d_run(const ln_call *c)
{
    int32_t count_all;
    const ln_window g = decode(c, &count_all);
    const size_t C = (size_t)g.C, W = (size_t)g.W;
    float *y = c->y;
    for (int32_t i = 0; i < g.Ho; i++)
        for (int32_t j = 0; j < g.Wo; j++, y += C) {
            const int32_t top = i * g.sh - g.top, left = j * g.sw - g.left; /* pixel of tap (0,0) */
            const ln_taps u = ln_taps_inside(top, 1, g.kh, g.H), v = ln_taps_inside(left, 1, g.kw, g.W);
            const int32_t rows = u.end - u.first, columns = v.end - v.first;
            const float count = (float)(count_all ? g.kh * g.kw : rows * columns);
            const float *x = c->x[0] + ((size_t)(top + u.first) * W + (size_t)(left + v.first)) * C;
            for (size_t k = 0; k < C; k += LN_LANES) {
                const uint32_t live = C - k < LN_LANES ? (uint32_t)(C - k) : LN_LANES;
                window(y + k, x + k, W * C, C, rows, columns, live, count);
            }
        }
}

uint64_t ln_avgpool2d_macs(const ln_call *c)
{
    (void)c;
    return 0;
}

#include "ln_cold_end.h"
