/* resize   an image at another size, each axis alone: target i of m looks at source position p of n,
 *   half_pixel p = ((2i+1) n - m) / 2m   asymmetric p = i n / m   align_corners p = i (n-1) / (m-1)
 * nearest: the value at p rounded; bilinear: between the two around p, which is held inside the image.
 * x (H,W,C)  y (Ho,Wo,C), sides below 2^16   Cost 4 Ho*Wo*C multiplications. y may not overlap x. */
#include "ln_lanes.h"
#include "ln_resize.h"
#include "ln_shapes.h"

#ifdef LN_WITH_RESIZE

enum { HALF_PIXEL = 0, ASYMMETRIC = 1 };       /* coordinates */
enum { FLOOR = 0, HALF_DOWN = 1, HALF_UP = 2 }; /* rounding */

ln_status ln_resize_check(const ln_call *c)
{
    ln_resize_attrs a;
    ln_resize_decode(c->op.attrs, &a);
    if (c->in[0].rank != 3 || c->out.rank != 3 || c->in[0].dims[2] != c->out.dims[2]) return LN_BAD_SHAPE;
    for (int k = 0; k < 2; k++)
        if ((uint32_t)a.size[k] != c->out.dims[k] || c->in[0].dims[k] > 65535 || c->out.dims[k] > 65535)
            return LN_BAD_SHAPE;
    return ln_check_rest(c, 0);
}

static int64_t floor_of(int64_t p, int64_t d) /* d > 0 */
{
    return p >= 0 ? p / d : -((d - 1 - p) / d);
}

ln_resize_tap ln_resize_look(const ln_resize_attrs *a, int64_t i, int64_t n, int64_t m)
{
    int64_t p, d;
    ln_resize_tap t = {0, 0, 0, 1};
    if (a->coordinates == HALF_PIXEL) {
        p = (2 * i + 1) * n - m;
        d = 2 * m;
    } else if (a->coordinates == ASYMMETRIC) {
        p = i * n;
        d = m;
    } else {
        p = i * (n - 1);
        d = m > 1 ? m - 1 : 1;
    }
    if (a->mode == LN_RESIZE_NEAREST) {
        int64_t j = a->rounding == FLOOR       ? floor_of(p, d)
                    : a->rounding == HALF_DOWN ? -floor_of(d - 2 * p, 2 * d)
                    : a->rounding == HALF_UP   ? floor_of(2 * p + d, 2 * d)
                                               : -floor_of(-p, d);
        t.j = (size_t)(j < 0 ? 0 : j < n ? j : n - 1);
        return t;
    }
    if (p < 0) p = 0;
    if (p > (n - 1) * d) p = (n - 1) * d;
    t.j = (size_t)(p / d);
    t.next = (int64_t)t.j + 1 < n ? 1 : 0;
    t.f = (uint32_t)(p % d);
    t.d = (uint32_t)d;
    return t;
}

/* y[k] = a x[k] + b below[k] + c right[k] + d corner[k] */
static void mix(float *y, const float *const x[4], const float share[4], size_t C)
{
    for (size_t first = 0; first < C; first += LN_LANES) {
        const size_t live = ln_live_lanes(C, first);
        float sum[LN_LANES] = {0}, t[LN_LANES];
        for (int i = 0; i < 4; i++) {
            ln_get_lanes(t, x[i] + first, live);
            for (int k = 0; k < LN_LANES; k++) sum[k] += share[i] * t[k];
        }
        ln_put_lanes(y + first, sum, live);
    }
}

void ln_resize_run(const ln_call *c)
{
    ln_resize_attrs a;
    ln_resize_decode(c->op.attrs, &a);
    const size_t W = c->in[0].dims[1], C = c->in[0].dims[2];
    float *y = c->y;
    for (int32_t i = 0; i < a.size[0]; i++) {
        const ln_resize_tap u = ln_resize_look(&a, i, c->in[0].dims[0], a.size[0]);
        for (int32_t j = 0; j < a.size[1]; j++, y += C) {
            const ln_resize_tap v = ln_resize_look(&a, j, c->in[0].dims[1], a.size[1]);
            const float fu = (float)u.f / (float)u.d, fv = (float)v.f / (float)v.d;
            const float *near = c->x[0] + (u.j * W + v.j) * C;
            const float *const x[4] = {near, near + u.next * W * C, near + v.next * C, near + (u.next * W + v.next) * C};
            const float share[4] = {(1.0f - fu) * (1.0f - fv), fu * (1.0f - fv), (1.0f - fu) * fv, fu * fv};
            if (a.mode == LN_RESIZE_NEAREST)
                for (size_t k = 0; k < C; k++) y[k] = near[k];
            else
                mix(y, x, share, C);
        }
    }
}

uint64_t ln_resize_macs(const ln_call *c)
{
    (void)c;
    return 0;
}

#endif
