/* The ways to run a step of int8: what of them needs no vectors. */
#include "fast_int8.h"

/* The place of a tensor that is int8. Places count in floats: offsets in the arena and starts of outputs are multiples of
 * 4 bytes. */
static int8_t *place(const ln_place *p, const ln_work *work)
{
    return (int8_t *)(work->base[p->base] + p->at);
}

void ln_step_int8(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    ln_call c = s->call;
    (void)x, (void)y;
    for (uint32_t k = 0; k < c.op.n_inputs; k++) {
        if (ln_i8_type(c.in[k].dtype)) c.qx[k] = place(&s->x[k], work);
        else c.x[k] = work->base[s->x[k].base] + s->x[k].at;
    }
    if (ln_i8_type(c.out.dtype)) c.qy = place(&s->y, work);
    else c.y = work->base[s->y.base] + s->y.at;
    if (c.op.scratch_bytes) c.scratch = work->base[LN_AT_ARENA] + c.op.scratch_at / sizeof(float);
    ln_run_op(&c);
}

/* ---- the frame: the image with a border of its zero point, so that a window sees no edge */

static void fill(int8_t *to, int8_t value, size_t n)
{
#if defined(__GNUC__)
    __builtin_memset(to, value, n);
#else
    for (size_t k = 0; k < n; k++) to[k] = value;
#endif
}

static void copy(int8_t *to, const int8_t *from, size_t n)
{
#if defined(__GNUC__)
    __builtin_memcpy(to, from, n);
#else
    for (size_t k = 0; k < n; k++) to[k] = from[k];
#endif
}

/* n numbers from `from`, or where that is NULL of value z, to number `at` of the frame */
static void put(const ln_int8_step *q, void *frame, size_t at, const int8_t *from, int8_t z, size_t n)
{
    int16_t *wide = q->wide ? (int16_t *)frame + at : NULL;
    int8_t *narrow = q->wide ? NULL : (int8_t *)frame + at;
    if (from && !q->as_is) q->kernels->copy(from, q->wide ? (void *)wide : narrow, n);
    else if (from) copy(narrow, from, n);
    else if (q->wide) {
        size_t k = 0;
#if defined(__GNUC__) /* compilers make no vectors of it with the binding's options */
        const uint64_t four = (uint64_t)(uint16_t)z * 0x0001000100010001u;
        for (; k + 4 <= n; k += 4) __builtin_memcpy(wide + k, &four, sizeof four);
#endif
        for (; k < n; k++) wide[k] = z;
    } else fill(narrow, !q->as_is && q->kernels->lifts ? (int8_t)(z ^ -128) : z, n);
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Lines [first, end) of the image x in its frame of g->Wo pixels, of which (g->top, g->left) is the image's first. What
 * stands `apart` pixels from each other in x does so side by side in the frame, the first such pixels first. */
static void put_lines(const ln_int8_step *q, const ln_window *g, int32_t apart, void *frame, const int8_t *x, int8_t z,
                      int32_t first, int32_t end)
{
    const size_t C = (size_t)g->C, before = (size_t)least(g->left, g->Wo) * C;
    const size_t columns = (size_t)(g->Wo <= g->left ? 0 : least(g->W, g->Wo - g->left)) * C, line = (size_t)g->Wo * C;
    size_t at = 0;

    for (int32_t i = first; i < end; i++) {
        const int32_t from = i - g->top;
        const int8_t *seen = x + (size_t)from * (size_t)g->W * C;
        if (g->kh == 1 && i % g->sh) { /* is seen by no window */
            at += line;
            continue;
        }
        if (from < 0 || from >= g->H) {
            put(q, frame, at, NULL, z, line);
            at += line;
            continue;
        }
        for (int32_t k = 0; apart > 1 && k < apart; k++)
            for (int32_t j = k - g->left; j < g->Wo - g->left; j += apart, at += C)
                put(q, frame, at, j < 0 || j >= g->W ? NULL : seen + (size_t)j * C, z, C);
        if (apart > 1) continue;
        put(q, frame, at, NULL, z, before);
        put(q, frame, at + before, seen, z, columns);
        put(q, frame, at + before + columns, NULL, z, line - before - columns);
        at += line;
    }
}

static const void *framed(const ln_step *s, const ln_work *work, const int8_t *x)
{
    const ln_int8_step *q = s->int8;
    const ln_window *g = &s->framed;
    const int8_t z = (int8_t)s->call.in[0].zero_point;

    if (!q->framed) return x;
    put_lines(q, g, 1, work->scratch, x, z, 0, g->Ho);
    put(q, work->scratch, (size_t)g->Ho * q->line, NULL, z, q->slack);
    return work->scratch;
}

/* ---- work that can be cut into parts */

typedef struct shared { /* what all parts of one step see */
    const ln_step *s;
    const void *x;
    int8_t *y;
    float *scratch; /* of the first worker */
    uint32_t parts;
} shared;

static void share(const ln_step *s, const ln_work *work, const void *x, float *scratch,
                  void (*part)(void *job, uint32_t index, uint32_t worker))
{
    shared all = {s, x, place(&s->y, work), scratch, s->parts};
    if (work->pool && s->parts > 1) {
        work->pool->run(work->pool, s->parts, part, &all);
        return;
    }
    all.parts = 1;
    part(&all, 0, 0);
}

enum { ROWS_TOGETHER = 12, ENOUGH_ROWS = 48, PANELS_TOGETHER = 4 };

static uint32_t panels_of(uint32_t channels)
{
    return (channels + LN_PANEL - 1) / LN_PANEL;
}

static void product_part(void *job, uint32_t index, uint32_t worker)
{
    const shared *all = job;
    const ln_step *s = all->s;
    const ln_int8_step *q = s->int8;
    uint32_t row = 0, row_end = s->rows, panel = 0, panel_end = panels_of(q->product.O);
    (void)worker;
    if (s->rows >= ENOUGH_ROWS) ln_part_of(s->rows, ROWS_TOGETHER, index, all->parts, &row, &row_end);
    else ln_part_of(panel_end, PANELS_TOGETHER, index, all->parts, &panel, &panel_end);
    if (row == row_end || panel == panel_end) return;
    for (uint32_t g = 0; g < s->groups; g++) {
        ln_product8 p = q->product;
        const size_t size = q->wide ? sizeof(int16_t) : 1;
        if (p.weights) p.weights = (const uint8_t *)p.weights + g * q->group_weights * size;
        if (p.bias) p.bias += g * q->group_biases;
        q->kernels->product(&p, s->call.w + g * s->group_w, (const uint8_t *)all->x + g * s->group_x * size,
                            all->y + g * s->group_y, row, row_end, panel, panel_end);
    }
}

void ln_step_int8_product(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    (void)x, (void)y;
    share(s, work, framed(s, work, place(&s->x[0], work)), NULL, product_part);
}

static void wino_part(void *job, uint32_t index, uint32_t worker)
{
    const shared *all = job;
    const ln_wino8 *p = &all->s->int8->wino;
    uint32_t tile = 0, tile_end = p->tiles_down * p->tiles_right, panel = 0, panel_end = panels_of(p->O);
    if (tile_end >= 2 * LN_WINO8_BLOCK) ln_part_of(tile_end, 1, index, all->parts, &tile, &tile_end);
    else ln_part_of(panel_end, 1, index, all->parts, &panel, &panel_end);
    if (tile < tile_end && panel < panel_end)
        all->s->int8->kernels->wino(p, all->s->call.w, all->x, all->y, all->scratch + worker * all->s->worker_scratch, tile,
                                    tile_end, panel, panel_end);
}

void ln_step_int8_wino(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    const size_t aside = s->int8->aside;
    const int8_t *image = place(&s->x[0], work);
    int8_t *kept = (int8_t *)work->scratch;
    (void)x, (void)y;
    if (aside) copy(kept, image, aside);
    share(s, work, aside ? kept : image, work->scratch + (aside + 63) / 64 * 16, wino_part);
}

/* Lines [first, end) of the depthwise convolution's frame, whose border is there, as the product makes them of x. */
static void make_lines(const ln_step *s, int8_t *frame, const uint8_t *x, int32_t first, int32_t end)
{
    const ln_int8_step *q = s->int8;
    const ln_window *g = &q->image;
    const int32_t from = first > g->top ? first - g->top : 0, to = least(end - g->top, g->H);
    const int32_t apart = q->kernels->depthwise_lifts ? g->sw : 1, columns = least(g->W, g->Wo - g->left);
    size_t start = 0;
    for (int32_t i = first; i < end; i++)
        if (i < g->top || i >= g->top + g->H)
            put(q, frame, (size_t)(i - first) * q->image_line, NULL, (int8_t)s->call.out.zero_point, q->image_line);
    for (int32_t k = 0; k < apart && from < to; k++) {
        const int32_t j = (k + apart - g->left % apart) % apart; /* the first column that comes here */
        ln_product8 p = q->product;
        if (j < columns) {
            p.Wo = (uint32_t)((columns - j + apart - 1) / apart);
            p.step_j *= (size_t)apart;
            p.y_gap = q->image_line - p.Wo * p.y_step;
            q->kernels->product(&p, s->call.w, x + (size_t)from * p.step_i + (size_t)j * q->product.step_j,
                                frame + (size_t)(from + g->top - first) * q->image_line
                                    + (start + (size_t)((g->left + j) / apart)) * p.y_step,
                                0, (uint32_t)(to - from) * p.Wo, 0, panels_of(p.O));
        }
        start += (size_t)((g->Wo - k + apart - 1) / apart);
    }
}

static void depthwise_part(void *job, uint32_t index, uint32_t worker)
{
    const shared *all = job;
    const ln_step *s = all->s;
    const ln_int8_step *q = s->int8;
    const ln_depthwise8 *d = &q->depthwise;
    const ln_window *g = &q->image;
    const int8_t z = (int8_t)(q->joined ? s->call.out.zero_point : s->call.in[0].zero_point);
    int8_t *frame = (int8_t *)(all->scratch + worker * s->worker_scratch);
    uint32_t row, end;
    ln_part_of(d->Ho, 1, index, all->parts, &row, &end);
    if (q->lines == 0) {
        q->kernels->depthwise(d, q->image_w, all->x, all->y, row, end, 0, panels_of(d->C));
        return;
    }
    const size_t line = q->image_line;
    int32_t base = (int32_t)row * g->sh, made = base; /* lines [base, made) are in the frame */
    const size_t behind = q->lines * line, from = q->joined ? 0 : behind; /* a product makes no border */
    put(q, frame, from, NULL, z, behind + LN_BYTES_BEHIND - from);
    for (uint32_t to; row < end; row = to) {
        to = end - row < q->block ? end : row + q->block;
        const int32_t first = (int32_t)row * g->sh, last = (int32_t)(to - 1) * g->sh + (g->kh - 1) * g->dh + 1;
        const int32_t kept = made > first ? made - first : 0;
        const int8_t *seen = frame + (size_t)(first - base) * line;
        int8_t *next = frame + (size_t)kept * line;
        for (size_t k = 0; k < (size_t)kept; k++) copy(frame + k * line, seen + k * line, line);
        if (q->joined) make_lines(s, next, all->x, first + kept, last);
        else put_lines(q, g, q->kernels->depthwise_lifts ? g->sw : 1, next, all->x, z, first + kept, last);
        q->kernels->depthwise(d, q->image_w, frame, all->y + (size_t)row * d->Wo * d->C, 0, to - row, 0, panels_of(d->C));
        base = first;
        made = last;
    }
}

void ln_step_int8_depthwise(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    (void)x, (void)y;
    share(s, work, place(&s->x[0], work), work->scratch, depthwise_part);
}

void ln_step_int8_line_by_line(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    (void)x, (void)y;
    share(s, work, framed(s, work, place(&s->x[0], work)), work->scratch + s->int8->image_at, depthwise_part);
}

/* ---- the others */

void ln_step_int8_add(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    const ln_call *c = &s->call;
    const ln_quant q = ln_quant_of(c->op.attrs);
    const int32_t half = (int32_t)1 << (q.shift - 1);
    const int32_t rest = half - c->in[0].zero_point * q.m1 - c->in[1].zero_point * q.m2;
    (void)x, (void)y;
    s->int8->kernels->add(place(&s->x[0], work), place(&s->x[1], work), place(&s->y, work), c->out.elements, q.m1, q.m2,
                          rest, ln_quantum_of(c));
}

void ln_step_int8_maxpool(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    const ln_int8 *kernels = s->int8->kernels;
    const ln_window *g = &s->framed;
    const size_t C = (size_t)g->C, line = (size_t)g->W * C;
    const int8_t *image = place(&s->x[0], work);
    int8_t *to = place(&s->y, work);
    (void)x, (void)y;
    for (int32_t i = 0; i < g->Ho; i++) {
        const int32_t top = i * g->sh - g->top;
        const ln_taps u = ln_taps_inside(top, 1, g->kh, g->H);
        for (int32_t j = 0; j < g->Wo; j++, to += C) {
            const int32_t left = j * g->sw - g->left;
            const ln_taps v = ln_taps_inside(left, 1, g->kw, g->W);
            const int8_t *first = image + (size_t)(top + u.first) * line + (size_t)(left + v.first) * C;
            copy(to, first, C);
            for (int32_t a = 0; a < u.end - u.first; a++)
                for (int32_t b = a == 0; b < v.end - v.first; b++)
                    kernels->most(first + (size_t)a * line + (size_t)b * C, to, C);
        }
    }
}

void ln_step_int8_mean(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    const ln_call *c = &s->call;
    const ln_quant q = ln_quant_of(c->op.attrs);
    const size_t C = c->in[0].dims[2], pixels = (size_t)c->in[0].dims[0] * c->in[0].dims[1];
    const int32_t zeros = (int32_t)pixels * c->in[0].zero_point;
    const int8_t *image = place(&s->x[0], work);
    int32_t *sum = (int32_t *)(void *)work->scratch;
    int8_t *to = place(&s->y, work);
    (void)x, (void)y;
    for (size_t k = 0; k < C; k++) sum[k] = -zeros;
    for (size_t p = 0; p < pixels; p++) s->int8->kernels->sum(image + p * C, sum, C);
    for (size_t k = 0; k < C; k++) to[k] = ln_held(&q, c->out.zero_point, ln_requant(sum[k], q.m1, 0));
}
