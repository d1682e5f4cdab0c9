/* How an int8 operator is run, decided once: part of ln_fast_prepare. */
#include "ln_cold.h"
#include "fast_int8.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>

static int has_vnni(void) /* AVX-512 is there: besides BW, DQ, VL and VNNI */
{
    enum { DQ = 1 << 17, BW = 1 << 30, VNNI = 1 << 11 }; /* leaf 7, ebx and ecx */
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & DQ) && (b & BW) && (b >> 31) && (c & VNNI);
}

static int has_avx_vnni(void) /* AVX2 is there */
{
    unsigned a, b, c, d;
#if defined(LN_EVEX_VNNI)
    return has_vnni();
#endif
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

static int has_dot(void)
{
    return getauxval(AT_HWCAP) >> 20 & 1; /* HWCAP_ASIMDDP */
}
#endif

const ln_int8 *ln_int8_for(const ln_kernels *kernels)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (kernels == &ln_kernels_sse2) return &ln_int8_sse2;
    if (kernels == &ln_kernels_avx512 && has_vnni()) return &ln_int8_vnni;
#if defined(LN_AVX_VNNI)
    if (has_avx_vnni()) return &ln_int8_avxvnni;
#endif
    return &ln_int8_avx2;
#elif defined(__ARM_NEON) && defined(__GNUC__)
    (void)kernels;
#if defined(__aarch64__) && defined(__linux__)
    if (has_dot()) return &ln_int8_dot;
#elif defined(__aarch64__) && defined(__APPLE__)
    return &ln_int8_dot;
#endif
    return &ln_int8_neon;
#elif defined(__wasm_simd128__)
    (void)kernels;
    return &ln_int8_wasm;
#else
    (void)kernels;
    return NULL;
#endif
}

/* The image in a frame of down x right pixels, and `slack` numbers behind them. 0: more than a run should ask for. */
static int frame(ln_step *s, ln_int8_step *q, const ln_window *g, int32_t down, int32_t right, uint32_t wide, size_t slack)
{
    const uint64_t line = (uint64_t)right * (uint64_t)g->C;
    if ((uint64_t)down * line > LN_MAX_ELEMENTS / 2) return 0;
    s->framed = *g;
    s->framed.Ho = down;
    s->framed.Wo = right;
    q->framed = 1;
    q->line = (size_t)line;
    q->slack = slack;
    q->wide = wide;
    s->scratch_bytes = ((uint64_t)down * line + slack) * (wide ? sizeof(int16_t) : 1);
    return 1;
}

/* What the kernels need of the weights besides what is stored; spans are of `taken` numbers. */
static void prepare_weights(ln_builder *b, ln_step *s, ln_int8_step *q, uint32_t taken)
{
    const int as_stored = q->kernels->widens == 2 && s->rows == 1 && taken % 4 == 0 && q->product.n_u * q->product.n_v == 1;
    const size_t weights = as_stored ? 0 : ln_product8_weights(q->kernels, &q->product, taken);
    const size_t biases = ln_product8_biases(q->kernels, &q->product);
    /* behind a narrow panel more is read than it has */
    uint8_t *to = weights ? ln_plan_take(b, (uint64_t)weights * s->groups + 8 * LN_PANEL) : NULL;
    int32_t *bias = biases ? ln_plan_take(b, (uint64_t)biases * s->groups) : NULL;

    q->group_weights = weights / (q->kernels->widens ? sizeof(int16_t) : 1);
    q->group_biases = biases / sizeof(int32_t);
    if (b->memory == NULL) return;
    for (uint32_t g = 0; g < s->groups; g++)
        ln_product8_prepare(q->kernels, &q->product, taken, s->call.w + g * s->group_w, to ? to + g * weights : NULL,
                            bias ? bias + g * q->group_biases : NULL);
    q->product.weights = to;
    q->product.bias = bias;
}

static int copies(const ln_int8 *kernels) /* do their products read x in another form? */
{
    return kernels->lifts || kernels->widens;
}

static void plan_linear(ln_builder *b, ln_step *s, ln_int8_step *q)
{
    const ln_tensor *x = &s->call.in[0], *y = &s->call.out;
    ln_product8 *p = &q->product;
    const uint32_t K = y->rank == 2 ? x->dims[1] : x->elements;
    ln_window g = {0};
    p->O = y->dims[y->rank - 1];
    p->n = (K + 3) & ~3u;
    p->n_u = p->n_v = p->Wo = 1;
    p->step_i = K;
    p->y_step = p->O;
    p->stored = (size_t)LN_PANEL * (8 + (size_t)p->n);
    p->q = ln_quantum_of(&s->call);
    s->rows = x->elements / K;
    g.H = g.C = 1;
    g.W = (int32_t)x->elements;
    if ((copies(q->kernels) || K % 4) && !frame(s, q, &g, 1, g.W, q->kernels->widens, 4)) return;
    prepare_weights(b, s, q, K);
    s->run = ln_step_int8_product;
}

/* Estimated cycles of the direct sum, whose values have to be rounded and stored, and of Winograd's algorithm. To transform, and
 * to round, costs as much as some products for each value of each point; 36 points have as many weights of 16 bits, which each block of tiles reads anew, from the third cache where
 * they are too many. */
enum { TRANSFORM = 14, THIRD_BYTES = 16, VALUES_A_CYCLE = 2 };

static uint64_t direct_cycles(const ln_step *s, const ln_int8_step *q)
{
    const ln_product8 *p = &q->product;
    const uint64_t products = (uint64_t)s->rows * s->groups * p->O * p->n_u * p->n_v * p->n;
    return products / q->kernels->products + (uint64_t)s->rows * s->groups * p->O / VALUES_A_CYCLE;
}

static uint64_t wino_cycles(const ln_int8 *kernels, const ln_wino8 *w)
{
    const uint64_t tiles = (uint64_t)w->tiles_down * w->tiles_right, weights = (uint64_t)w->C * w->O;
    const uint64_t computing = LN_WINO8_POINTS * tiles * (weights + TRANSFORM * (uint64_t)(w->C + w->O)) / kernels->wino_products;
    const uint64_t bytes = LN_WINO8_POINTS * sizeof(int16_t) * weights;
    const uint64_t reading = bytes < LN_SECOND_CACHE ? 0 : (tiles + LN_WINO8_BLOCK - 1) / LN_WINO8_BLOCK * bytes / THIRD_BYTES;
    return computing > reading ? computing + reading / 4 : reading + computing / 4;
}

static uint64_t wino_scratch(const ln_builder *b, const ln_wino8 *w) /* bytes of all workers */
{
    return (uint64_t)((ln_wino8_scratch(w) + 63) / 64 * 64) * (b->pool ? b->pool->threads : 1);
}

/* The convolution, which is planned as a direct sum, by Winograd's algorithm if that is thought to be faster. */
static void plan_wino(ln_builder *b, ln_step *s, ln_int8_step *q, const ln_window *g)
{
    ln_wino8 *w = &q->wino;
    *w = (ln_wino8){g->H, g->W, g->Ho, g->Wo, g->top, g->left, s->call.in[0].zero_point, (uint32_t)g->C, q->product.O,
                    ((uint32_t)g->Ho + 3) / 4, ((uint32_t)g->Wo + 3) / 4, 0, q->product.stored, NULL, q->product.q};
    const uint64_t cycles = wino_cycles(q->kernels, w), scratch = wino_scratch(b, w);
    if (b->choice == LN_CHOOSE ? cycles >= direct_cycles(s, q) : b->choice != LN_WINOGRAD_4) return;
    if (scratch > UINT32_MAX / 4) return; /* more than a run should ask for */
    if (w->C > LN_WINO8_CHANNELS && !ln_wino8_fits(w, s->call.w)) return;
    q->framed = 0;
    s->cycles = cycles;
    s->scratch_bytes = scratch;
    s->worker_scratch = (ln_wino8_scratch(w) + 63) / 64 * 16;
    s->run = ln_step_int8_wino;
    int16_t *weights = ln_plan_take(b, LN_WINO8_POINTS * sizeof(int16_t) * (uint64_t)ln_wino8_weights_step(w));
    if (weights) ln_wino8_prepare(w, q->kernels->pairs, s->call.w, weights);
    w->weights = weights;
}

static void plan_conv2d(ln_builder *b, ln_step *s, ln_int8_step *q)
{
    ln_conv2d_attrs a;
    ln_conv2d_decode(s->call.op.attrs, &a);
    const ln_window g = ln_window_of(&s->call, a.kernel_size, a.stride, a.padding, a.dilation);
    const uint32_t groups = (uint32_t)a.groups, C = (uint32_t)g.C / groups, O = s->call.out.dims[2] / groups;
    const int joined = g.dw == 1 && groups == 1; /* taps of a kernel row are one span */
    const uint32_t taken = joined ? C * (uint32_t)g.kw : C, K = (uint32_t)(g.kh * g.kw) * C;
    const int32_t down = (g.Ho - 1) * g.sh + (g.kh - 1) * g.dh + 1; /* pixels that the window sees */
    const int32_t right = (g.Wo - 1) * g.sw + (g.kw - 1) * g.dw + 1;
    const int inside = g.top == 0 && g.left == 0 && down <= g.H && right <= g.W;
    const int bytes = q->kernels->widens == 2 && inside && g.kh * g.kw * g.sh * g.sw == 1 && groups == 1 && C % 2 == 0
                   && C <= LN_WIDEN8_MOST && g.Ho * g.Wo > 1; /* of one row, weights may be as they are stored */
    const int copied = (!inside || copies(q->kernels) || taken % 4) && !bytes;
    const size_t line = (size_t)(copied ? right : g.W) * (size_t)g.C;
    ln_product8 *p = &q->product;

    if ((joined ? g.kh : g.kh * g.kw) > LN_BYTE_SPANS) return;
    if (copied && !frame(s, q, &g, down, right, q->kernels->widens, 4)) return;
    p->O = O;
    p->bytes = (uint32_t)bytes;
    p->n_u = (uint32_t)g.kh;
    p->n_v = joined ? 1 : (uint32_t)g.kw;
    p->n = q->kernels->widens == 2 ? (taken + 1) & ~1u : (taken + 3) & ~3u;
    p->step_u = (size_t)g.dh * line;
    p->step_v = (size_t)g.dw * (size_t)g.C;
    p->step_i = (size_t)g.sh * line;
    p->step_j = (size_t)g.sw * (size_t)g.C;
    p->Wo = (uint32_t)g.Wo;
    p->y_step = s->call.out.dims[2];
    p->stored = (size_t)LN_PANEL * (8 + (((size_t)K + 3) & ~(size_t)3));
    p->q = ln_quantum_of(&s->call);
    s->rows = (uint32_t)g.Ho * (uint32_t)g.Wo;
    s->groups = groups;
    s->group_x = C;
    s->group_y = O;
    s->group_w = (size_t)ln_panels_bytes(O, K, LN_I8);
    const int small = (uint64_t)LN_WINO8_POINTS * sizeof(int16_t) * C * O <= LN_WINO8_BYTES && q->kernels->widens;
    const int suits = ln_wino_suits(s->call.op.attrs, (uint32_t)g.C, s->call.out.dims[2]);
    if (q->kernels->wino && (g.C <= LN_WINO8_CHANNELS || small) && suits) plan_wino(b, s, q, &g);
    if (s->run == ln_step_int8_wino) return;
    prepare_weights(b, s, q, taken);
    s->run = ln_step_int8_product;
}

/* Bytes of a frame's lines that are made at a time: they and what else is used shall stay in the second cache. */
enum { FRAME_BYTES = 160 << 10 };

/* A place for the frame of each worker, whose lines have `right` pixels; a line of y must be possible, whatever it takes. */
static void plan_frame(const ln_builder *b, ln_step *s, ln_int8_step *q, const ln_window *g, int32_t right)
{
    const uint32_t seen = (uint32_t)((g->kh - 1) * g->dh) + 1;
    const uint64_t line = (uint64_t)right * (uint64_t)g->C, room = FRAME_BYTES / line;
    q->block = room > seen ? (uint32_t)(room - seen) / (uint32_t)g->sh + 1 : 1;
    if (q->block > (uint32_t)g->Ho) q->block = (uint32_t)g->Ho;
    q->lines = (q->block - 1) * (uint32_t)g->sh + seen;
    q->image_line = (size_t)line;
    s->worker_scratch = (size_t)((q->lines * line + LN_BYTES_BEHIND + 63) / 64 * 16);
    s->scratch_bytes += (uint64_t)s->worker_scratch * sizeof(float) * (b->pool ? b->pool->threads : 1);
}

static void plan_depthwise(ln_builder *b, ln_step *s, ln_int8_step *q)
{
    ln_depthwise_conv2d_attrs a;
    ln_depthwise_conv2d_decode(s->call.op.attrs, &a);
    ln_window g = ln_window_of(&s->call, a.kernel_size, a.stride, a.padding, a.dilation);
    const int32_t down = (g.Ho - 1) * g.sh + (g.kh - 1) * g.dh + 1;
    const int32_t right = (g.Wo - 1) * g.sw + (g.kw - 1) * g.dw + 1;
    const int edges = g.top > 0 || g.left > 0 || down > g.H || right > g.W;
    const int copied = edges || g.C % LN_PANEL || q->kernels->depthwise_lifts;
    const int32_t apart = q->kernels->depthwise_lifts ? g.sw : 1;
    const size_t C = (size_t)g.C, line = (size_t)(copied ? right : g.W) * C;
    ln_depthwise8 *d = &q->depthwise;

    if (g.kh * g.kw > LN_BYTE_TAPS || (uint64_t)down * (uint64_t)right * C > LN_MAX_ELEMENTS / 2) return;
    if (copied) plan_frame(b, s, q, &g, right);
    q->as_is = !q->kernels->depthwise_lifts;
    q->image_w = s->call.w;
    d->C = (uint32_t)g.C;
    d->Ho = (uint32_t)g.Ho;
    d->Wo = (uint32_t)g.Wo;
    d->taps = (uint32_t)(g.kh * g.kw);
    d->across = (uint32_t)g.kw;
    for (int32_t v = 0; v < g.kw; v++) {
        size_t column = (size_t)(v * g.dw / apart);
        for (int32_t k = 0; k < v * g.dw % apart; k++) column += (size_t)((right - k + apart - 1) / apart);
        for (int32_t u = 0; u < g.kh; u++) d->tap[u * g.kw + v] = (size_t)(u * g.dh) * line + column * C;
    }
    d->step_i = (size_t)g.sh * line;
    d->step_j = (size_t)(g.sw / apart) * C;
    d->q = ln_quantum_of(&s->call);
    q->image = g;
    q->image.Wo = right;
    s->run = ln_step_int8_depthwise;
}

static void plan_maxpool(ln_step *s)
{
    ln_maxpool2d_attrs a;
    ln_maxpool2d_decode(s->call.op.attrs, &a);
    s->framed = ln_window_of(&s->call, a.kernel_size, a.stride, a.padding, NULL);
    s->run = ln_step_int8_maxpool;
}

enum { OTHERS_A_CYCLE = 8 }; /* a rough guess, for all sets */

void ln_plan_int8(ln_builder *b, ln_step *s)
{
    ln_int8_step counted, *q = ln_plan_take(b, sizeof *q);
    const uint16_t id = s->call.op.id;

    if (q == NULL) q = &counted;
    *q = (ln_int8_step){0};
    q->kernels = ln_int8_for(b->kernels);
    s->run = ln_step_int8;
    s->parts = 1;
    if (q->kernels && ln_is_i8(&s->call)) {
        if (id == LN_OP_LINEAR) plan_linear(b, s, q);
        if (id == LN_OP_CONV2D) plan_conv2d(b, s, q);
        if (id == LN_OP_DEPTHWISE_CONV2D) plan_depthwise(b, s, q);
        if (id == LN_OP_MAXPOOL2D) plan_maxpool(s);
        if (id == LN_OP_ADD) s->run = ln_step_int8_add;
        if (id == LN_OP_GLOBAL_AVG_POOL) {
            s->run = ln_step_int8_mean;
            s->scratch_bytes = s->call.out.elements * sizeof(int32_t);
        }
    }
    s->int8 = q == &counted ? NULL : q;
    s->algorithm = s->run == ln_step_int8           ? "portable"
                 : s->run == ln_step_int8_product ? "product"
                 : s->run == ln_step_int8_wino    ? "winograd 4x4"
                                                  : "vectors";
    if (s->run == ln_step_int8_product) s->cycles = direct_cycles(s, q);
    if (s->run == ln_step_int8_depthwise) s->cycles = (uint64_t)s->call.out.elements * q->depthwise.taps / OTHERS_A_CYCLE;
    s->parts = ln_plan_parts(b, s);
}

/* The product `alone` and the depthwise convolution behind it, which is all that sees what it makes: where that reads its
 * image from a frame, the product can make it there. */
static void join_depthwise(ln_builder *b, uint32_t i, const ln_step *alone, ln_step *s)
{
    enum { LEAST_ROWS = 8 }; /* of a part: lines that two parts need are made by both */
    ln_step next;
    ln_int8_step counted, *q;
    if (alone->run != ln_step_int8_product || alone->groups != 1) return;
    if (!ln_int8_for(b->kernels)->depthwise_lifts) return; /* of the others products may read x where it is */
    ln_plan_op(b, i + 1, 0, &next);
    if (next.run != ln_step_int8_depthwise) return;
    q = ln_plan_take(b, sizeof *q);
    if (q == NULL) q = &counted;
    *s = *alone;
    if (alone->int8) {
        const ln_int8_step *from = next.int8;
        *q = *alone->int8;
        q->depthwise = from->depthwise;
        q->image = from->image;
        q->image_line = from->image_line;
        q->lines = from->lines;
        q->block = from->block;
        q->image_w = from->image_w;
        q->image_at = (size_t)((alone->scratch_bytes + 63) / 64 * 16);
        q->joined = 1;
        q->product.q.flip = 128;
    }
    s->int8 = q == &counted ? NULL : q;
    s->run = ln_step_int8_line_by_line;
    s->y = next.y;
    s->count = 2;
    s->cycles += next.cycles;
    s->worker_scratch = next.worker_scratch;
    s->scratch_bytes = (alone->scratch_bytes + 63) / 64 * 64 + next.scratch_bytes;
    s->parts = ln_plan_parts(b, s);
    if (s->parts > next.call.out.dims[0] / LEAST_ROWS + 1) s->parts = next.call.out.dims[0] / LEAST_ROWS + 1;
    s->algorithm = "product, depthwise";
}

void ln_plan_int8_joined(ln_builder *b, uint32_t i, const ln_step *alone, ln_step *s)
{
    ln_int8_step counted, *q;
    ln_call next;

    *s = (ln_step){0};
    const int wino = alone->run == ln_step_int8_wino;
    if ((alone->run != ln_step_int8_product && !wino) || alone->call.op.id != LN_OP_CONV2D || i + 1 >= b->m->op_count) return;
    ln_load_call(b->m, i + 1, &next);
    if (next.op.inputs[0] != alone->call.op.output || alone->call.out.is_output || alone->call.out.last != i + 1) return;
    if (next.op.id == LN_OP_DEPTHWISE_CONV2D) join_depthwise(b, i, alone, s);
    if (next.op.id != LN_OP_MAXPOOL2D || !ln_plan_halves(&next)) return;
    const ln_place y = ln_plan_place(b->m, next.op.output);
    const int over = ln_plan_overlap(&y, (next.out.bytes + 3) / 4, &alone->x[0], (alone->call.in[0].bytes + 3) / 4);
    q = ln_plan_take(b, sizeof *q);
    if (q == NULL) q = &counted;
    if (alone->int8) {
        *q = *alone->int8;
        if (!wino && ((!q->framed && over) || q->product.bytes)) return;
        q->product.pool = 1;
        q->product.Wo /= 2;
        q->wino.pool = 1;
        q->wino.tiles_down = ((uint32_t)q->wino.Ho / 2 + 1) / 2;
        q->wino.tiles_right = ((uint32_t)q->wino.Wo / 2 + 1) / 2;
        q->aside = wino && over ? alone->call.in[0].bytes : 0;
    }
    *s = *alone;
    if (wino && over) s->scratch_bytes += (alone->call.in[0].bytes + 63) & ~(uint64_t)63;
    s->int8 = q == &counted ? NULL : q;
    s->y = y;
    s->count = 2;
    s->rows = next.out.dims[0] * next.out.dims[1] * 4;
    s->algorithm = wino ? "winograd 4x4, pooled" : "product, pooled";
}

#include "ln_cold_end.h"
