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
    for (uint32_t k = 1; k < c.op.n_inputs; k++) c.x[k] = place(&s->x[k], work);
    c.y = y;
    if (c.op.scratch_bytes) c.scratch = work->base[LN_AT_ARENA] + c.op.scratch_at / sizeof(float);
    s->op(&c);
}

void ln_step_depthwise(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    ln_call c = s->call;
    (void)work;
    c.x[0] = x;
    c.y = y;
    s->kernels->depthwise(&c, &s->window, &s->product.finish);
}

/* ---- work that can be cut into parts: by rows where there are enough of them, else by panels of channels */

typedef struct shared { /* what all parts of one step see */
    const ln_step *s;
    const float *x, *other;
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

/* Part `index` of `parts` of the numbers below n, which begin at multiples of `step`. */
static void part_of(uint32_t n, uint32_t step, uint32_t index, uint32_t parts, uint32_t *first, uint32_t *end)
{
    const uint64_t steps = n / step + (n % step != 0);
    const uint64_t from = steps * index / parts * step, to = steps * (index + 1) / parts * step;
    *first = from < n ? (uint32_t)from : n;
    *end = to < n ? (uint32_t)to : n;
}

enum { ENOUGH_ROWS = 4 * LN_MOST_ROWS };

static uint32_t panels_of(uint32_t channels)
{
    return (channels + LN_PANEL - 1) / LN_PANEL;
}

/* Those rows and panels, of all groups. other: as finish.other */
static void product_block(const ln_step *s, const float *x, const float *other, float *y, uint32_t row, uint32_t row_end,
                          uint32_t panel, uint32_t panel_end)
{
    uint32_t whole = panel_end; /* panels that are for these kernels */
    const ln_kernels *narrow = s->kernels->narrow;
    if (narrow && panel_end * LN_PANEL >= s->product.O + 8 && panel < panel_end) whole--;
    for (uint32_t g = 0; g < s->groups; g++) {
        const uint8_t *w = s->call.w + g * s->group_w;
        const float *gx = x + g * s->group_x;
        float *gy = y + g * s->group_y;
        ln_product p = s->product;
        if (p.finish.slopes) p.finish.slopes += g * s->group_y;
        if (other) p.finish.other = other + g * s->group_y;
        if (panel < whole) s->kernels->product(&p, w, gx, gy, row, row_end, panel, whole);
        if (whole < panel_end) narrow->product(&p, w, gx, gy, row, row_end, whole, panel_end);
    }
}

static void product_part(void *job, uint32_t index, uint32_t worker)
{
    const shared *all = job;
    const ln_step *s = all->s;
    uint32_t row = 0, row_end = s->rows, panel = 0, panel_end = panels_of(s->product.O);
    (void)worker;
    if (s->rows >= ENOUGH_ROWS) part_of(s->rows, LN_MOST_ROWS, index, all->parts, &row, &row_end);
    else part_of(panel_end, 1, index, all->parts, &panel, &panel_end);
    product_block(s, all->x, all->other, all->y, row, row_end, panel, panel_end);
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
    part_of(panels_of(all->s->product.O), 1, index, all->parts, &panel, &end);
    const ln_kernels *k = all->s->product.f16 && all->s->kernels->narrow ? all->s->kernels->narrow : all->s->kernels;
    ln_product p = all->s->product;
    p.finish.other = all->other;
    k->vector(&p, all->s->call.w, all->x, all->y, panel, end);
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
    if (tile_end >= 2 * LN_WINO_BLOCK) part_of(tile_end, 1, index, all->parts, &tile, &tile_end);
    else part_of(panel_end, 1, index, all->parts, &panel, &panel_end);
    if (tile < tile_end && panel < panel_end)
        all->s->kernels->wino(&p, all->x, all->y, all->scratch + worker * all->s->worker_scratch, tile, tile_end, panel,
                              panel_end);
}

void ln_step_wino(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    share_out(s, work, x, y, work->scratch, wino_part);
}

/* ---- a convolution, and depthwise and 1 x 1 ones behind it, strip by strip: what lies between stays in the cache */

typedef struct strip { /* lines of what one step of a chain gives */
    float *at;           /* where line `top` is */
    size_t line;         /* floats */
    int32_t top, bottom; /* those that are there: [top, bottom) */
    int32_t low, high;   /* those that the next steps want: [low, high) */
} strip;

/* The lines of the step before that line `begin` to `end` of s see. */
static void find_lines(const ln_step *s, int32_t begin, int32_t end, strip *before)
{
    const ln_window *g = &s->window;
    before->low = begin;
    before->high = end;
    if (s->run != ln_step_depthwise) return;
    const int32_t from = begin * g->sh - g->top, to = (end - 1) * g->sh - g->top + (g->kh - 1) * g->dh + 1;
    before->low = from < 0 ? 0 : from < g->H ? from : g->H;
    before->high = to < before->low ? before->low : to < g->H ? to : g->H;
}

/* Lines [begin, end) of s, to y, of what the step before has. */
static void run_lines(const ln_step *s, const float *x, const strip *before, const float *other, float *y, int32_t begin,
                      int32_t end)
{
    if (s->run != ln_step_depthwise) {
        product_block(s, x, other, y, 0, (uint32_t)(end - begin) * s->product.Wo, 0, panels_of(s->product.O));
        return;
    }
    ln_window part = s->window;
    ln_call c = s->call;
    part.H = before->high - before->low;
    part.Ho = end - begin;
    part.top = before->low - (begin * part.sh - part.top);
    c.x[0] = x;
    c.y = y;
    s->kernels->depthwise(&c, &part, &s->product.finish);
}

/* Makes lines [first, end) of the last step, and for them the lines of those before that are not there yet. */
static void run_strip(const shared *all, strip *of, int32_t first, int32_t end)
{
    const ln_step *chain = all->s->chain;
    const uint32_t last = all->s->stages - 1;
    of[last].low = of[last].bottom = first;
    of[last].high = end;
    for (uint32_t k = last; k > 0; k--) {
        const int32_t begin = of[k].low < of[k].bottom ? of[k].bottom : of[k].low;
        if (begin < of[k].high) find_lines(&chain[k], begin, of[k].high, &of[k - 1]);
        else of[k - 1].low = of[k - 1].high = of[k - 1].bottom;
    }
    for (uint32_t k = 0; k <= last; k++) {
        strip *t = &of[k];
        const strip *before = t - 1;
        const int32_t begin = t->low < t->bottom ? t->bottom : t->low;
        if (begin >= t->high) continue;
        for (int32_t i = t->low; i < t->bottom && k < last && t->low > t->top; i++)
            copy(t->at + (size_t)(i - t->low) * t->line, t->at + (size_t)(i - t->top) * t->line, t->line);
        t->top = t->low;
        t->bottom = t->high;
        const float *x = k ? before->at + (size_t)(before->low - before->top) * before->line
                           : all->x + (size_t)begin * chain[0].product.step_i;
        float *y = k < last ? t->at + (size_t)(begin - t->low) * t->line : all->y + (size_t)begin * t->line;
        const float *other = k == last && all->other ? all->other + (size_t)begin * t->line : NULL;
        run_lines(&chain[k], x, before, other, y, begin, t->high);
    }
}

static void chain_part(void *job, uint32_t index, uint32_t worker)
{
    const shared *all = job;
    const ln_step *s = all->s;
    const int32_t lines = (int32_t)s->lines;
    float *scratch = all->scratch + worker * s->worker_scratch;
    strip of[LN_CHAIN_MOST];
    uint32_t first, end;

    for (uint32_t k = 0; k < s->stages; k++) {
        const uint32_t *dims = s->chain[k].call.out.dims;
        of[k] = (strip){scratch, (size_t)dims[1] * dims[2], 0, 0, 0, 0};
        scratch += s->chain[k].lines * of[k].line;
    }
    part_of(s->chain[s->stages - 1].call.out.dims[0], 1, index, all->parts, &first, &end);
    for (int32_t i = (int32_t)first, n; i < (int32_t)end; i += n) {
        n = (int32_t)end - i < lines ? (int32_t)end - i : lines;
        run_strip(all, of, i, i + n);
    }
}

void ln_step_chain(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    float *scratch = work->scratch;
    if (s->framed.C) {
        frame(&s->framed, s->pixel, x, scratch);
        x = scratch;
        scratch += ((size_t)s->framed.Ho * (size_t)s->framed.Wo * s->pixel + 15) / 16 * 16;
    }
    share_out(s, work, x, y, scratch, chain_part);
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

ln_status ln_fast_run(const ln_model *m, void *arena, const float *in, float *out, ln_after_op after, void *user)
{
    const ln_plan *plan = ln_plan_of(m);
    ln_work work;
    work.base[LN_AT_ARENA] = arena;
    work.base[LN_AT_INPUT] = (float *)(uintptr_t)in; /* only read: no operator's output is the input */
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
