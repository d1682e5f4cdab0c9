/* ln_fast_prepare: how each operator of a model is run, decided once. The plan is a list of steps in the caller's
 * memory, followed by the weights that Winograd's algorithm needs in another form. It is made twice by the same code:
 * the first time, by ln_fast_bytes, only to count. */
#include "ln_cold.h"
#include "fast_int8.h"

/* ---- memory */

void *ln_plan_take(ln_builder *b, uint64_t bytes)
{
    void *at = b->memory ? b->memory + b->used : NULL;
    b->used += (bytes + 63) & ~(uint64_t)63;
    return at;
}

/* ---- places */

ln_place ln_plan_place(const ln_model *m, uint32_t index)
{
    ln_tensor t;
    ln_place p = {LN_AT_ARENA, 0};
    ln_get_tensor(m, index, &t);
    if (t.is_input) p.base = LN_AT_INPUT;
    else if (!t.is_output) p.at = t.arena_at / sizeof(float);
    else {
        p.base = LN_AT_OUTPUT;
        for (uint32_t i = 0; i < index; i++) {
            ln_get_tensor(m, i, &t);
            if (t.is_output) p.at += (t.bytes + 3) / sizeof(float);
        }
    }
    return p;
}

/* ---- choosing between the direct sum and Winograd's algorithm */

/* Estimated cycles of both. A kernel multiplies and adds 16 values a cycle, or 8 with the smallest vectors. To transform
 * costs as much as some multiply-adds for each value of each point. Weights come from the third cache, or where there
 * are too many from memory, at some bytes a cycle, partly while the kernel computes; F(4,3) has four times as many. */
enum { TRANSFORM = 7, THIRD_CACHE = 1 << 23, THIRD_BYTES = 16, MEMORY_BYTES = 5 };

static uint64_t cycles_of(const ln_builder *b, uint64_t macs, uint64_t weights)
{
    const uint64_t computing = macs / (b->kernels->lanes == 4 ? 8 : 16), bytes = 4 * weights;
    const uint64_t bytes_a_cycle = b->plain > THIRD_CACHE ? MEMORY_BYTES : THIRD_BYTES;
    const uint64_t reading = bytes < LN_SECOND_CACHE ? 0 : bytes / bytes_a_cycle;
    return computing > reading ? computing + reading / 4 : reading + computing / 4;
}

static uint64_t direct_cycles(const ln_builder *b, const ln_step *s)
{
    const uint64_t weights = (uint64_t)s->product.K * s->product.O * s->groups;
    return cycles_of(b, s->rows * weights, weights);
}

static uint64_t wino_cycles(const ln_builder *b, const ln_wino *w)
{
    const uint64_t points = (uint64_t)(w->m + 2) * (w->m + 2), tiles = (uint64_t)w->tiles_down * w->tiles_right;
    const uint64_t weights = (uint64_t)w->C * w->O;
    return cycles_of(b, tiles * points * (weights + TRANSFORM * (uint64_t)(w->C + w->O)), points * weights);
}

static ln_wino wino_of(const ln_window *g, uint32_t O, uint32_t m, uint32_t pool, ln_finish finish)
{
    ln_wino w = {0};
    w.m = m;
    w.H = g->H;
    w.W = g->W;
    w.Ho = g->Ho;
    w.Wo = g->Wo;
    w.top = g->top;
    w.left = g->left;
    w.C = (uint32_t)g->C;
    w.O = O;
    w.pool = pool;
    w.finish = finish;
    const uint32_t down = (uint32_t)g->Ho >> pool << pool; /* a last row that no pool takes is not made */
    const uint32_t right = (uint32_t)g->Wo >> pool << pool;
    w.tiles_down = (down + m - 1) / m;
    w.tiles_right = (right + m - 1) / m;
    return w;
}

/* ---- the operators */

static void (*const core_run[LN_OP_END])(const ln_call *) = {
#define LN_OP(id, NAME, name, n_inputs, inplace_mask) [id] = ln_##name##_run,
#include "ln_ops.def"
};

static void plan_linear(ln_step *s)
{
    ln_linear_attrs a;
    ln_linear_decode(s->call.op.attrs, &a);
    const ln_tensor *y = &s->call.out;
    ln_product *p = &s->product;
    p->O = y->dims[y->rank - 1];
    p->K = y->rank == 2 ? s->call.in[0].dims[1] : s->call.in[0].elements;
    p->n = p->K;
    p->step_i = p->K;
    p->finish = ln_finish_of(s->call.op.activation, a.alpha);
    s->rows = s->call.in[0].elements / p->K;
    s->run = s->rows == 1 ? ln_step_vector : ln_step_product;
    s->algorithm = s->rows == 1 ? "vector" : "product";
}

static void plan_embed(ln_step *s)
{
    ln_embed_projection_attrs a;
    ln_embed_projection_decode(s->call.op.attrs, &a);
    ln_product *p = &s->product;
    p->O = (uint32_t)a.embed_dim;
    p->K = s->call.in[0].dims[0] * s->call.in[0].dims[1];
    p->n = p->K;
    p->step_i = p->K;
    p->finish = ln_finish_of(s->call.op.activation, a.alpha);
    s->rows = a.keep_channels ? s->call.in[0].dims[2] : 1;
    s->run = ln_step_embed;
    s->algorithm = s->rows == 1 ? "vector" : "product";
    s->scratch_bytes = (uint64_t)s->rows * p->K * sizeof(float);
}

/* The spans of a convolution: taps of a kernel row are one where they see memory without a gap. */
static void plan_conv2d(ln_builder *b, ln_step *s, uint32_t pool)
{
    ln_conv2d_attrs a;
    ln_conv2d_decode(s->call.op.attrs, &a);
    ln_window g = ln_window_of(&s->call, a.kernel_size, a.stride, a.padding, a.dilation);
    ln_product *p = &s->product;
    const uint32_t O = s->call.out.dims[2], groups = (uint32_t)a.groups, C = (uint32_t)g.C / groups;
    const int32_t down = (g.Ho - 1) * g.sh + (g.kh - 1) * g.dh + 1; /* pixels that the window sees */
    const int32_t right = (g.Wo - 1) * g.sw + (g.kw - 1) * g.dw + 1;
    const int framed = g.top > 0 || g.left > 0 || down > g.H || right > g.W;
    /* Pixels that are a power of two of bytes apart would share few sets of the cache: */
    const int spread = framed && g.C % 256 == 0;
    const size_t pixel = (size_t)g.C + (spread ? LN_PANEL : 0);
    const uint64_t wide_line = (uint64_t)(framed ? right : g.W) * pixel;
    if (framed && (uint64_t)down * wide_line > LN_MAX_ELEMENTS) return; /* more than a run should ask for */
    const size_t line = (size_t)wide_line;
    const int joined = g.dw == 1 && groups == 1 && !spread;

    if (joined ? g.kh > LN_MOST_SPANS : g.kh * g.kw > LN_MOST_SPANS) return;
    p->O = O / groups;
    p->K = (uint32_t)(g.kh * g.kw) * C;
    p->n_u = (uint32_t)g.kh;
    p->n_v = joined ? 1 : (uint32_t)g.kw;
    p->n = joined ? C * (uint32_t)g.kw : C;
    p->step_u = (size_t)g.dh * line;
    p->step_v = (size_t)g.dw * pixel;
    p->step_i = (size_t)g.sh * line;
    p->step_j = (size_t)g.sw * pixel;
    p->Wo = (uint32_t)g.Wo >> pool;
    p->y_step = O;
    p->pool = pool;
    p->finish = ln_finish_of(s->call.op.activation, a.alpha);
    s->rows = pool ? (uint32_t)(g.Ho / 2) * (uint32_t)(g.Wo / 2) * 4 : (uint32_t)g.Ho * (uint32_t)g.Wo;
    s->groups = groups;
    s->group_x = C;
    s->group_y = p->O;
    s->group_w = (size_t)ln_panels_bytes(p->O, p->K, s->call.op.weight_dtype);
    if (framed) {
        s->framed = g;
        s->framed.Ho = down;
        s->framed.Wo = right;
        s->pixel = pixel;
        s->scratch_bytes = (uint64_t)down * line * sizeof(float);
    }
    s->run = ln_step_product;
    s->algorithm = pool ? "direct, pooled" : "direct";
    if (!ln_wino_suits(s->call.op.attrs, (uint32_t)g.C, O) || b->choice == LN_DIRECT) return;

    uint32_t m = 0;
    uint64_t least = direct_cycles(b, s);
    for (uint32_t tile = 2; tile <= 4; tile += 2) {
        const ln_wino w = wino_of(&g, O, tile, pool, p->finish);
        const uint64_t cycles = wino_cycles(b, &w);
        if (b->choice == LN_CHOOSE ? cycles < least : b->choice == (int)tile) {
            least = cycles;
            m = tile;
        }
    }
    if (m == 0) return;
    s->cycles = least;
    s->wino = wino_of(&g, O, m, pool, p->finish);
    s->framed.C = 0;
    const uint64_t scratch = (ln_wino_scratch(&s->wino) + 15) / 16 * 16;
    s->worker_scratch = (size_t)scratch;
    s->scratch_bytes = scratch * sizeof(float) * (b->pool ? b->pool->threads : 1);
    s->run = ln_step_wino;
    s->algorithm = m == 2 ? (pool ? "winograd 2x2, pooled" : "winograd 2x2")
                          : (pool ? "winograd 4x4, pooled" : "winograd 4x4");
}

/* Into how many parts the work is cut. Several a thread, so that one that wakes late, or shares its processor, does
 * fewer; but each so large that waking a thread, tens of microseconds, is little beside the whole. */
enum { LEAST_TO_SHARE = 300000, LEAST_PART = 100000, PARTS_A_THREAD = 3, LEAST_TO_THREAD = 3000000 }; /* cycles */
enum { LEAST_TO_SPLIT = 1 << 18 }; /* floats of transformed weights */

/* Does the file hold the weights that this step needs? */
static int stored(const ln_step *s)
{
    return s->call.op.algorithm != 0 && s->wino.m == ln_wino_tile(s->call.op.algorithm);
}

/* A place for the weights that Winograd's algorithm needs, made when all layers have theirs; or where the file has them. */
static void place_weights(ln_builder *b, ln_step *s)
{
    const uint32_t C = s->wino.C, O = s->wino.O, points = (s->wino.m + 2) * (s->wino.m + 2);
    const uint64_t floats = points * ln_wino_step(C, O);
    s->wino.bias = ln_plan_take(b, (uint64_t)O * sizeof(float));
    if (stored(s)) {
        s->wino.weights = (const float *)(const void *)(s->call.w + ln_panels_bytes(O, 9 * (uint64_t)C, LN_F32));
        return;
    }
    s->wino.weights = ln_plan_take(b, floats * sizeof(float));
    b->transformed += floats;
}

/* The weights of one layer. Parts of one would mean that two threads wait for the system to clear the same new page. */
static void transform_part(void *job, uint32_t index, uint32_t worker)
{
    const ln_builder *b = job;
    const uint32_t i = b->m->op_count - 1 - index; /* the largest, mostly the last, come first */
    const ln_step *s = &((const ln_plan *)(const void *)b->memory)->step[i];
    const ln_wino *p = &s->wino;
    const uint32_t dtype = s->call.op.weight_dtype;
    float *weights = (float *)(uintptr_t)p->weights, *bias = (float *)(uintptr_t)p->bias;
    (void)worker;
    if (s->run != ln_step_wino) return;
    if (!stored(s)) b->kernels->wino_weights(p->m, s->call.w, dtype == LN_F16, p->C, p->O, weights, 0, p->O / LN_PANEL);
    for (uint32_t o = 0; o < p->O; o += LN_PANEL)
        ln_read_weights(s->call.w, dtype, (size_t)o * (9 * p->C + 1), bias + o, LN_PANEL);
}

static void transform_weights(ln_builder *b)
{
    if (b->pool && b->transformed >= LEAST_TO_SPLIT) b->pool->run(b->pool, b->m->op_count, transform_part, b);
    else for (uint32_t i = 0; i < b->m->op_count; i++) transform_part(b, i, 0);
}

uint32_t ln_plan_parts(const ln_builder *b, const ln_step *s)
{
    if (b->pool == NULL || s->cycles < LEAST_TO_SHARE) return 1;
    const uint64_t worth = s->cycles / LEAST_PART, most = (uint64_t)PARTS_A_THREAD * b->pool->threads;
    return worth < most ? (uint32_t)worth : (uint32_t)most;
}

void ln_plan_op(ln_builder *b, uint32_t i, uint32_t pool, ln_step *s)
{
    const int choice = b->choice;
    if (choice == LN_CHOOSE && b->m->choices) b->choice = b->m->choices[i];
    *s = (ln_step){0};
    ln_load_call(b->m, i, &s->call);
    if (!b->kernels->halves && s->call.op.weight_dtype == LN_F16) {
        s->call.op.weight_dtype = LN_F32;
        if (b->memory) s->call.w = (const uint8_t *)b->widened[i];
    }
    const uint16_t id = s->call.op.id;
    s->kernels = b->kernels;
    for (uint32_t k = 0; k < s->call.op.n_inputs; k++) s->x[k] = ln_plan_place(b->m, s->call.op.inputs[k]);
    s->y = ln_plan_place(b->m, s->call.op.output);
    s->groups = s->count = 1;
    if (ln_touches_i8(&s->call)) {
        ln_plan_int8(b, s);
        b->choice = choice;
        return;
    }
    s->product.f16 = s->call.op.weight_dtype == LN_F16;
    s->product.n_u = s->product.n_v = s->product.Wo = 1;
    s->op = b->kernels->run[id] ? b->kernels->run[id] : core_run[id];
    s->run = ln_step_op;
    s->algorithm = b->kernels->run[id] ? "vectors" : "portable";
    if (id == LN_OP_LINEAR) plan_linear(s);
    if (id == LN_OP_EMBED_PROJECTION) plan_embed(s);
    if (id == LN_OP_CONV2D) plan_conv2d(b, s, pool);
    if (id == LN_OP_DEPTHWISE_CONV2D) ln_plan_depthwise(b, s);
    b->choice = choice;
    if (id != LN_OP_CONV2D) s->product.y_step = s->product.O;
    if (s->run != ln_step_op && s->cycles == 0) s->cycles = direct_cycles(b, s);
    s->parts = ln_plan_parts(b, s);
    if (s->scratch_bytes > UINT32_MAX / 2) { /* more than a run should ask for */
        s->run = ln_step_op;
        s->scratch_bytes = 0;
        s->algorithm = "portable";
    }
}

/* Makes floats of half weights, for kernels that take nothing else. */
static void widen(ln_builder *b)
{
    enum { READ_PAST = 128 }; /* bytes, as in a file: vectors are read whole */
    if (b->kernels->halves) return;
    b->widened = ln_plan_take(b, (uint64_t)b->m->op_count * sizeof *b->widened);
    for (uint32_t i = 0; i < b->m->op_count; i++) {
        ln_op op;
        ln_get_op(b->m, i, &op);
        if (op.weight_dtype != LN_F16) continue;
        const size_t n = op.weights_bytes / 2;
        float *to = ln_plan_take(b, (uint64_t)n * sizeof(float) + READ_PAST);
        if (to == NULL) continue;
        ln_read_weights(b->m->bin + op.weights_at, LN_F16, 0, to, n);
        b->widened[i] = to;
    }
}

static uint64_t plain_bytes(const ln_model *m)
{
    uint64_t apart = 0;
    for (uint32_t i = 0; i < m->op_count; i++) {
        ln_call c;
        ln_load_call(m, i, &c);
        if (c.op.algorithm) apart += ln_wino_stored_bytes(c.op.algorithm, c.in[0].dims[2], c.out.dims[2]);
    }
    return apart < m->weights_bytes ? m->weights_bytes - apart : 0; /* several records may name one block */
}

static void build(ln_builder *b)
{
    ln_plan counting;
    ln_step spare[2];
    const uint64_t list = (uint64_t)b->m->op_count * sizeof(ln_step);
    ln_plan *made = ln_plan_take(b, sizeof counting);
    if (made == NULL) made = &counting;
    const ln_int8 *kernels = ln_int8_for(b->kernels);
    made->head.run = ln_fast_run;
    made->head.enter = kernels ? kernels->enter : NULL;
    made->kernels = b->kernels;
    made->pool = b->pool;
    made->step = ln_plan_take(b, list);
    made->joined = ln_plan_take(b, list);
    widen(b);
    b->plain = plain_bytes(b->m);
    for (uint32_t i = 0; i < b->m->op_count; i++) {
        ln_step *s = b->memory ? &made->step[i] : &spare[0], *j = b->memory ? &made->joined[i] : &spare[1];
        ln_plan_op(b, i, 0, s);
        if (s->run == ln_step_wino) place_weights(b, s);
        ln_plan_joined(b, i, s, j);
        b->cycles += s->cycles;
        if (s->scratch_bytes > b->scratch) b->scratch = s->scratch_bytes;
        if (j->scratch_bytes > b->scratch) b->scratch = j->scratch_bytes;
    }
    if (b->memory) transform_weights(b);
}

uint32_t ln_fast_candidates(const ln_model *m, uint32_t op_index)
{
    ln_call c;
    if (m == NULL || op_index >= m->op_count) return 0;
    ln_load_call(m, op_index, &c);
    if (c.op.id != LN_OP_CONV2D || ln_touches_i8(&c)) return 0;
    if (!ln_wino_suits(c.op.attrs, c.in[0].dims[2], c.out.dims[2])) return 0;
    return 1u << LN_DIRECT | 1u << LN_WINOGRAD_2 | 1u << LN_WINOGRAD_4;
}

void ln_fast_choose(ln_model *m, const uint8_t *choices)
{
    m->choices = choices;
}

static size_t bytes_of(ln_builder b) /* that was told what, and has counted nothing */
{
    if (b.m == NULL || b.m->len == 0 || b.kernels == NULL) return 0;
    build(&b);
    return b.used > SIZE_MAX / 2 ? 0 : (size_t)b.used;
}

size_t ln_fast_bytes_as(const ln_model *m, int kernels, int choice)
{
    return bytes_of((ln_builder){m, ln_kernels_for(kernels), choice, NULL, NULL, 0, 0, 0, 0, NULL, 0});
}

ln_status ln_fast_prepare_as(ln_model *m, int kernels, int choice, ln_pool *pool, void *memory, size_t bytes)
{
    ln_builder b = {m, ln_kernels_for(kernels), choice, NULL, NULL, 0, 0, 0, 0, NULL, 0};
    const size_t need = bytes_of(b);
    if (need == 0 || memory == NULL) return LN_NULL_POINTER;
    if (bytes < need) return LN_ARENA_TOO_SMALL;
    if ((uintptr_t)memory % 64) return LN_ARENA_MISALIGNED;
    b.pool = pool;
    b.memory = memory;
    build(&b);
    ((ln_plan *)memory)->bytes = need;
    m->fast = memory;
    m->fast_bytes = b.scratch ? (uint32_t)b.scratch + 64 : 0;
    return LN_OK;
}

size_t ln_fast_bytes(const ln_model *m, int kernels)
{
    return ln_fast_bytes_as(m, kernels, LN_CHOOSE);
}

ln_status ln_fast_prepare(ln_model *m, int kernels, ln_pool *pool, void *memory, size_t bytes)
{
    return ln_fast_prepare_as(m, kernels, LN_CHOOSE, pool, memory, bytes);
}

uint32_t ln_fast_threads(const ln_model *m, int kernels, uint32_t processors)
{
    ln_builder b = {m, ln_kernels_for(kernels), LN_CHOOSE, NULL, NULL, 0, 0, 0, 0, NULL, 0};
    if (m == NULL || m->len == 0 || b.kernels == NULL) return 1;
    build(&b);
    return b.cycles < LEAST_TO_THREAD || processors < 1 ? 1 : processors;
}

size_t ln_fast_size(const ln_model *m)
{
    return m->fast ? ln_plan_of(m)->bytes : 0;
}

const char *ln_fast_algorithm(const ln_model *m, uint32_t op_index)
{
    return m->fast ? ln_plan_of(m)->step[op_index].algorithm : "portable";
}

#include "ln_cold_end.h"
