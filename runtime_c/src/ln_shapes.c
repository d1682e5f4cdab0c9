#include "ln_cold.h"
#include "ln_shapes.h"

ln_status ln_check_rest(const ln_call *c, uint64_t weights_bytes)
{
    if (c->op.scratch_bytes != 0) return LN_BAD_SCRATCH;
    return c->op.weights_bytes == weights_bytes ? LN_OK : LN_BAD_WEIGHTS;
}

int ln_same_shape(const ln_tensor *a, const ln_tensor *b)
{
    if (a->rank != b->rank) return 0;
    for (uint32_t i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return 0;
    return 1;
}

ln_window ln_window_of(const ln_call *c, const int32_t kernel_size[2], const int32_t stride[2],
                       const int32_t padding[4], const int32_t dilation[2])
{
    ln_window g;
    g.H = (int32_t)c->in[0].dims[0];
    g.W = (int32_t)c->in[0].dims[1];
    g.C = (int32_t)c->in[0].dims[2];
    g.Ho = (int32_t)c->out.dims[0];
    g.Wo = (int32_t)c->out.dims[1];
    g.kh = kernel_size[0];
    g.kw = kernel_size[1];
    g.sh = stride[0];
    g.sw = stride[1];
    g.top = padding[0];
    g.left = padding[1];
    g.bottom = padding[2];
    g.right = padding[3];
    g.dh = dilation ? dilation[0] : 1;
    g.dw = dilation ? dilation[1] : 1;
    return g;
}

static int axis_holds(int32_t size, int32_t kernel, int32_t stride, int32_t pads, int32_t dilation, int32_t out)
{
    const int32_t room = size + pads - dilation * (kernel - 1) - 1; /* below 2^30 + 2^9 */
    return room >= 0 && room / stride + 1 == out;
}

int ln_window_holds(const ln_call *c, const ln_window *g)
{
    return c->in[0].rank == 3 && c->out.rank == 3
        && axis_holds(g->H, g->kh, g->sh, g->top + g->bottom, g->dh, g->Ho)
        && axis_holds(g->W, g->kw, g->sw, g->left + g->right, g->dw, g->Wo);
}

int ln_pool_holds(const ln_call *c, const ln_window *g)
{
    return ln_window_holds(c, g) && c->out.dims[2] == c->in[0].dims[2]
        && g->top < g->kh && g->bottom < g->kh && g->left < g->kw && g->right < g->kw;
}

#include "ln_cold_end.h"
