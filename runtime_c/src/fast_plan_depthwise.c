/* The part of the plan that is about depthwise convolutions, alone or as one with the product before them. */
#include "ln_cold.h"
#include "fast_plan.h"

/* Bytes that the ring of lines may take: the nearest cache has to hold it beside what the product reads. One line of
 * outputs must be possible, whatever it takes. A multiply-add here costs more cycles than in a product. */
enum { RING_BYTES = 26 << 10, CYCLES_A_VECTOR = 2 };

static void plan_ring(const ln_builder *b, ln_step *s)
{
    ln_depthwise *d = &s->depthwise;
    const ln_window *g = &d->g;
    const uint32_t least = (uint32_t)((g->kh - 1) * g->dh + 1), all = (uint32_t)((g->Ho - 1) * g->sh) + least;
    const uint64_t line = (uint64_t)d->width * LN_PIXEL;
    const uint64_t room = RING_BYTES / (line * sizeof(float));
    d->lines = room < least ? least : room < all ? (uint32_t)room : all;
    const uint64_t floats = d->lines * line;
    s->worker_scratch = (size_t)floats;
    s->scratch_bytes += floats * sizeof(float) * (b->pool ? b->pool->threads : 1);
    s->run = ln_step_depthwise;
}

void ln_plan_depthwise(const ln_builder *b, ln_step *s)
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
    plan_ring(b, s);
}

int ln_plan_line_by_line(const ln_builder *b, const ln_step *convolution, const ln_step *depthwise,
                         const ln_place *between, ln_step *s)
{
    const ln_product *p = &convolution->product;
    const ln_call *c = &convolution->call;
    const uint32_t x_floats = c->in[0].elements, y_floats = depthwise->call.out.elements;
    const int over = ln_plan_overlap(&depthwise->y, y_floats, &convolution->x[0], x_floats);
    if (convolution->groups != 1 || p->pool || p->Wo != c->out.dims[1]) return 0;
    *s = *convolution;
    if (over && s->framed.C == 0) { /* lines of y come before all of x is read: x goes aside */
        if (x_floats > c->out.elements || ln_plan_overlap(between, x_floats, &depthwise->y, y_floats)) return 0;
        s->aside = *between;
        s->aside_floats = x_floats;
    }
    s->product.y_step = LN_PIXEL;
    s->depthwise = depthwise->depthwise;
    s->depthwise.source_w = c->w;
    s->y = depthwise->y;
    s->other = depthwise->other;
    s->adds = depthwise->adds;
    s->count += depthwise->count;
    s->cycles += depthwise->cycles;
    s->detour = 0;
    s->scratch_bytes = 0;
    if (s->framed.C) {
        const uint64_t frame = (uint64_t)s->framed.Ho * (uint64_t)s->framed.Wo * s->pixel;
        s->scratch_bytes = (frame + 15) / 16 * 16 * sizeof(float);
    }
    plan_ring(b, s);
    s->parts = ln_plan_parts(b, s);
    return s->scratch_bytes <= UINT32_MAX / 2;
}

#include "ln_cold_end.h"
