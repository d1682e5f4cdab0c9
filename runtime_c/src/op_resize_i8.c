/* resize on int8: nearest as in op_resize.c; bilinear by whole numbers, y = (sum of wy wx x) / (dy dx), halves up
 * x (H,W,C)  y (Ho,Wo,C), sides below 2^16   Cost 4 Ho*Wo*C multiplications. y may not overlap x. */
#include "ln_cold.h"
#include "ln_int8.h"
#include "ln_resize.h"

#if defined(LN_WITH_I8) && defined(LN_WITH_RESIZE)

void ln_resize_i8_run(const ln_call *c)
{
    ln_resize_attrs a;
    ln_resize_decode(c->op.attrs, &a);
    const size_t W = c->in[0].dims[1], C = c->in[0].dims[2];
    int8_t *y = c->qy;
    for (int32_t i = 0; i < a.size[0]; i++) {
        const ln_resize_tap u = ln_resize_look(&a, i, c->in[0].dims[0], a.size[0]);
        for (int32_t j = 0; j < a.size[1]; j++, y += C) {
            const ln_resize_tap v = ln_resize_look(&a, j, c->in[0].dims[1], a.size[1]);
            const int8_t *near = c->qx[0] + (u.j * W + v.j) * C, *below = near + u.next * W * C;
            const size_t right = v.next * C;
            const int64_t fu = u.f, fv = v.f, gu = u.d - fu, gv = v.d - fv, D = (int64_t)u.d * v.d;
            for (size_t k = 0; k < C; k++) {
                const int64_t sum = gu * (gv * near[k] + fv * near[right + k])
                                    + fu * (gv * below[k] + fv * below[right + k]);
                y[k] = (int8_t)((2 * sum + D + 256 * D) / (2 * D) - 128); /* no division of a negative number */
            }
        }
    }
}

#endif

#include "ln_cold_end.h"
