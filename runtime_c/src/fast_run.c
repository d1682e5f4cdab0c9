/* The walk over a prepared model, and the ways to run one step of it. Whatever needs no vectors is here. */
#include "fast.h"

static void put_zeros(float *y, size_t n)
{
    for (size_t k = 0; k < n; k++) y[k] = 0.0f;
}

static void copy(float *y, const float *x, size_t n)
{
#if defined(__GNUC__)
    __builtin_memcpy(y, x, n * sizeof *y);
#else
    for (size_t k = 0; k < n; k++) y[k] = x[k];
#endif
}

/* The image in a frame of zeros, so that a window sees no edge: g->Ho x g->Wo pixels, `pixel` floats each, of which
 * (g->top, g->left) is the image's first. */
static void frame(const ln_window *g, size_t pixel, const float *x, float *to)
{
    const size_t C = (size_t)g->C, line = (size_t)g->Wo * pixel;
    const size_t before = (size_t)(g->left < g->Wo ? g->left : g->Wo) * pixel;
    const size_t columns = g->Wo <= g->left ? 0 : (size_t)(g->W < g->Wo - g->left ? g->W : g->Wo - g->left);

    for (int32_t i = 0; i < g->Ho; i++, to += line) {
        const int32_t from = i - g->top;
        if (from < 0 || from >= g->H) {
            put_zeros(to, line);
            continue;
        }
        const float *seen = x + (size_t)from * (size_t)g->W * C;
        put_zeros(to, before);
        if (pixel == C) copy(to + before, seen, columns * C);
        else
            for (size_t j = 0; j < columns; j++) copy(to + before + j * pixel, seen + j * C, C);
        put_zeros(to + before + columns * pixel, line - before - columns * pixel);
    }
}

static float *place(const ln_place *p, const ln_work *work)
{
    return work->base[p->base] + p->at;
}

void ln_step_op(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    ln_call c = s->call;
    c.x[0] = x;
    for (uint32_t k = 1; k < c.op.n_inputs; k++) c.x[k] = work->base[s->x[k].base] + s->x[k].at;
    c.y = y;
    if (c.op.scratch_bytes) c.scratch = work->base[LN_AT_ARENA] + c.op.scratch_at / sizeof(float);
    s->op(&c);
}

/* ---- work that can be cut into parts: by rows where there are enough of them, else by panels of channels */

typedef struct shared { /* what all parts of one step see */
    const ln_step *s;
    const float *x, *other; /* other: as ln_finish.other */
    float *y, *scratch;
    uint32_t parts;
} shared;

static void share_out(const ln_step *s, const ln_work *work, const float *x, float *y, float *scratch,
                      void (*part)(void *job, uint32_t index, uint32_t worker))
{
    const float *other = s->adds ? place(&s->other, work) : NULL;
    shared all = {s, x, other, y, scratch, s->parts};
    if (work->pool && s->parts > 1) {
        work->pool->run(work->pool, s->parts, part, &all);
        return;
    }
    all.parts = 1;
    part(&all, 0, 0);
}

void ln_part_of(uint32_t n, uint32_t step, uint32_t index, uint32_t parts, uint32_t *first, uint32_t *end)
{
    const uint64_t steps = n / step + (n % step != 0);
    const uint64_t from = steps * index / parts * step, to = steps * (index + 1) / parts * step;
    *first = from < n ? (uint32_t)from : n;
    *end = to < n ? (uint32_t)to : n;
}

enum { ENOUGH_ROWS = 4 * LN_MOST_ROWS, FEW_BYTES = 96 << 10 };

static uint32_t panels_of(uint32_t channels)
{
    return (channels + LN_PANEL - 1) / LN_PANEL;
}

/* The kernels for the product's type of weights. */
static const ln_kernels *kernels_of(const ln_step *s)
{
    return s->product.f16 && s->kernels->narrow ? s->kernels->narrow : s->kernels;
}

static void product_part(void *job, uint32_t index, uint32_t worker)
{
    const shared *all = job;
    const ln_step *s = all->s;
    uint32_t row = 0, row_end = s->rows, panel = 0, panel_end = panels_of(s->product.O);
    (void)worker;
    if (s->rows >= ENOUGH_ROWS) ln_part_of(s->rows, LN_MOST_ROWS, index, all->parts, &row, &row_end);
    else ln_part_of(panel_end, 1, index, all->parts, &panel, &panel_end);
    uint32_t whole = panel_end; /* panels that are for these kernels */
    const ln_kernels *kernels = kernels_of(s), *narrow = kernels->narrow;
    if (narrow && panel_end * LN_PANEL >= s->product.O + 8 && panel < panel_end) whole--;
    /* where both kernels read the same rows, and weights are few, some rows at a time: they stay near */
    const uint32_t most = panel < whole && whole < panel_end && s->group_w <= FEW_BYTES ? ENOUGH_ROWS : row_end;
    for (uint32_t g = 0; g < s->groups; g++) {
        const uint8_t *w = s->call.w + g * s->group_w;
        const float *x = all->x + g * s->group_x;
        float *y = all->y + g * s->group_y;
        ln_product p = s->product;
        if (p.finish.slopes) p.finish.slopes += g * s->group_y;
        if (all->other) p.finish.other = all->other + g * s->group_y;
        for (uint32_t r = row, end; r < row_end; r = end) {
            end = row_end - r < most ? row_end : r + most;
            if (panel < whole) kernels->product(&p, w, x, y, r, end, panel, whole);
            if (whole < panel_end) narrow->product(&p, w, x, y, r, end, whole, panel_end);
        }
    }
}

void ln_step_product(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    if (s->framed.C) {
        frame(&s->framed, s->pixel, x, work->scratch);
        x = work->scratch;
    }
    share_out(s, work, x, y, NULL, product_part);
}

static void vector_part(void *job, uint32_t index, uint32_t worker)
{
    const shared *all = job;
    uint32_t panel, end;
    (void)worker;
    ln_part_of(panels_of(all->s->product.O), 1, index, all->parts, &panel, &end);
    ln_product p = all->s->product;
    p.finish.other = all->other;
    kernels_of(all->s)->vector(&p, all->s->call.w, all->x, all->y, panel, end);
}

void ln_step_vector(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    share_out(s, work, x, y, NULL, vector_part);
}

static void wino_part(void *job, uint32_t index, uint32_t worker)
{
    const shared *all = job;
    ln_wino p = all->s->wino;
    uint32_t tile = 0, tile_end = p.tiles_down * p.tiles_right, panel = 0, panel_end = p.O / LN_PANEL;
    p.finish.other = all->other;
    if (tile_end >= 2 * LN_WINO_BLOCK) ln_part_of(tile_end, 1, index, all->parts, &tile, &tile_end);
    else ln_part_of(panel_end, 1, index, all->parts, &panel, &panel_end);
    if (tile < tile_end && panel < panel_end)
        all->s->kernels->wino(&p, all->x, all->y, all->scratch + worker * all->s->worker_scratch, tile, tile_end, panel,
                              panel_end);
}

void ln_step_wino(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    share_out(s, work, x, y, work->scratch, wino_part);
}

static void depthwise_part(void *job, uint32_t index, uint32_t worker)
{
    const shared *all = job;
    ln_depthwise d = all->s->depthwise;
    const ln_kernels *kernels = d.source ? kernels_of(all->s) : all->s->kernels, *narrow = kernels->narrow;
    float *ring = all->scratch + worker * all->s->worker_scratch;
    uint32_t panel, end;
    d.put.finish.other = all->other;
    ln_part_of(panels_of((uint32_t)d.g.C), 1, index, all->parts, &panel, &end);
    const int few = narrow && panel < end && end * LN_PANEL >= (uint32_t)d.g.C + 8; /* channels of the last panel */
    kernels->depthwise(&d, all->x, all->y, ring, panel, few ? end - 1 : end);
    if (few) narrow->depthwise(&d, all->x, all->y, ring, end - 1, end);
}

/* Alone, or with the product before it, whose x then is the one given. */
void ln_step_depthwise(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    float *ring = work->scratch;
    if (s->framed.C) {
        frame(&s->framed, s->pixel, x, work->scratch);
        x = work->scratch;
        ring += ((size_t)s->framed.Ho * (size_t)s->framed.Wo * s->pixel + 15) / 16 * 16;
    } else if (s->aside_floats) {
        float *aside = work->base[s->aside.base] + s->aside.at;
        copy(aside, x, s->aside_floats);
        x = aside;
    }
    share_out(s, work, x, y, ring, depthwise_part);
}

/* The pixels of each channel as a row, or their sums over the channels; then as any product. */
void ln_step_embed(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    const size_t P = s->product.K, C = s->call.in[0].dims[2];
    float *row = work->scratch;
    if (s->rows == 1)
        for (size_t p = 0; p < P; p++, x += C) {
            float sum = x[0];
            for (size_t c = 1; c < C; c++) sum += x[c];
            row[p] = sum;
        }
    else
        for (size_t p = 0; p < P; p++)
            for (size_t c = 0; c < C; c++) row[c * P + p] = x[p * C + c];
    if (s->rows == 1) ln_step_vector(s, work, row, y);
    else ln_step_product(s, work, row, y);
}

static void run_step(const ln_step *s, const ln_work *work)
{
    float *y = place(&s->y, work);
    if (s->detour == 0) {
        s->run(s, work, place(&s->x[0], work), y);
        return;
    }
    ln_work rest = *work;
    rest.scratch += (s->detour + 15) / 16 * 16;
    s->run(s, &rest, place(&s->x[0], work), work->scratch);
    copy(y, work->scratch, s->detour);
}

ln_status ln_fast_run(const ln_model *m, void *arena, const void *in, void *out, ln_after_op after, void *user)
{
    const ln_plan *plan = ln_plan_of(m);
    ln_work work;
    work.base[LN_AT_ARENA] = arena;
    work.base[LN_AT_INPUT] = (float *)(uintptr_t)in; /* of int8 maybe, and only read: no operator's output is the input */
    work.base[LN_AT_OUTPUT] = out;
    work.pool = plan->pool;
    work.scratch = (float *)(((uintptr_t)arena + m->arena_bytes + 63) & ~(uintptr_t)63);

    for (uint32_t i = 0; i < m->op_count; i++) {
        const ln_step *s = &plan->step[i];
        if (after == NULL && plan->joined[i].run) {
            run_step(&plan->joined[i], &work);
            i += plan->joined[i].count - 1;
            continue;
        }
        run_step(s, &work);
        if (after && after(user, i, &s->call.op, &s->call.out, place(&s->y, &work))) return LN_STOPPED;
    }
    return LN_OK;
}
