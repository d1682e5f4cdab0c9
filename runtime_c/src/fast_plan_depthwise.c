/* The part of the plan that is about depthwise convolutions, alone or as one with the product before them. */
#include "fast.h"

/* Bytes that the ring of lines may take: the nearest cache has to hold it beside what the product reads. One line of
 * outputs must be possible, whatever it takes. A multiply-add here costs more cycles than in a product. */
enum { RING_BYTES = 24 << 10, CYCLES_A_VECTOR = 2 };

static void plan_ring(ln_step *s, uint32_t threads)
{
    ln_depthwise *d = &s->depthwise;
    const ln_window *g = &d->g;
    const uint32_t least = (uint32_t)((g->kh - 1) * g->dh + 1), all = (uint32_t)((g->Ho - 1) * g->sh) + least;
    const uint64_t line = (uint64_t)d->width * LN_PIXEL;
    const uint64_t room = RING_BYTES / (line * sizeof(float));
    d->lines = room < least ? least : room < all ? (uint32_t)room : all;
    const uint64_t floats = d->lines * line;
    s->worker_scratch = (size_t)floats;
    s->scratch_bytes += floats * sizeof(float) * threads;
    s->run = ln_step_depthwise;
}

void ln_plan_depthwise(ln_step *s, uint32_t threads)
{
    ln_depthwise_conv2d_attrs a;
    ln_depthwise_conv2d_decode(s->call.op.attrs, &a);
    ln_depthwise *d = &s->depthwise;
    const ln_window g = ln_window_of(&s->call, a.kernel_size, a.stride, a.padding, a.dilation);
    const uint64_t width = (uint64_t)(g.Wo - 1) * (uint64_t)g.sw + (uint64_t)(g.kw - 1) * (uint64_t)g.dw + 1;
    if (g.kh > LN_MOST_LINES || g.kh * g.kw > LN_MOST_TAPS || width > LN_MAX_ELEMENTS / LN_PIXEL) return;
    d->g = g;
    d->dtype = s->call.op.weight_dtype;
    d->w = s->call.w;
    d->width = (uint32_t)width;
    d->put.finish = ln_finish_of(s->call.op.activation, a.alpha);
    d->put.y_step = (size_t)g.C;
    s->cycles = (uint64_t)s->call.out.elements * (uint64_t)(g.kh * g.kw) * CYCLES_A_VECTOR / s->kernels->lanes;
    s->algorithm = "direct";
    plan_ring(s, threads);
}

int ln_plan_product_depthwise(ln_step *s, const ln_step *next, const ln_place *between, uint32_t threads)
{
    const ln_product *p = &s->product;
    if (s->groups != 1 || p->pool || p->Wo != s->call.out.dims[1]) return 0;
    if (s->framed.C == 0 && s->call.in[0].elements > s->call.out.elements) return 0;
    s->product.y_step = LN_PIXEL;
    s->depthwise = next->depthwise;
    s->depthwise.source_w = s->call.w;
    s->y = next->y;
    s->cycles += next->cycles;
    s->aside = *between;
    s->aside_floats = s->framed.C ? 0 : s->call.in[0].elements;
    s->scratch_bytes = (s->scratch_bytes + 63) / 64 * 64;
    plan_ring(s, threads);
    return 1;
}
