/* Several operators as one step: what follows a sum is done before it is stored; and convolutions with a depthwise one
 * between them go through the image together. Only for a run of which nobody watches the operators. */
#include "fast_plan.h"

/* ---- what follows a sum */

typedef struct follow { /* what was found to follow */
    uint32_t count;     /* operators, the first included */
    uint32_t pool, adds, other; /* other: the tensor that is added */
    uint32_t act;       /* LN_ACT_*, where an operator of its own activates, else the first's own */
    float alpha;
    const float *slopes;
    ln_finish sum;      /* lo and hi: what clamps the sum */
} follow;

static int overlap(const ln_place *a, uint64_t a_floats, const ln_place *b, uint64_t b_floats)
{
    return a->base == b->base && a->at < b->at + b_floats && b->at < a->at + a_floats;
}

static int is_clamp(uint32_t act)
{
    return act == LN_ACT_NONE || act == LN_ACT_RELU || act == LN_ACT_RELU6;
}

static int halves(const ln_call *c) /* does this maxpool2d keep the largest of each 2 x 2? */
{
    ln_maxpool2d_attrs a;
    ln_maxpool2d_decode(c->op.attrs, &a);
    for (int k = 0; k < 2; k++)
        if (a.kernel_size[k] != 2 || a.stride[k] != 2) return 0;
    for (int k = 0; k < 4; k++)
        if (a.padding[k] != 0) return 0;
    return 1;
}

/* Takes up operator c, the next one, if it can be done as part of the step; the order is that of ln_finish. */
static int takes(follow *f, const ln_call *c, uint32_t before, const ln_step *s)
{
    const int depthwise = s->run == ln_step_depthwise, bare = f->act == LN_ACT_NONE && f->count == 1;
    switch (c->op.id) {
    case LN_OP_PRELU:
        if (f->slopes || f->adds || f->pool || (depthwise && !is_clamp(f->act))) return 0;
        f->slopes = ln_floats(c->w);
        return 1;
    case LN_OP_ACTIVATION: {
        ln_activation_attrs a;
        ln_activation_decode(c->op.attrs, &a);
        if (f->adds && is_clamp(c->op.activation) && f->sum.lo == -LN_INFINITE && f->sum.hi == LN_INFINITE) {
            f->sum = ln_finish_of(c->op.activation, 0.0f);
            return 1;
        }
        if (!bare || (depthwise && !is_clamp(c->op.activation))) return 0;
        f->act = c->op.activation;
        f->alpha = a.alpha;
        return 1;
    }
    case LN_OP_ADD:
        if (f->adds || f->pool || depthwise || !is_clamp(c->op.activation)) return 0;
        if (c->op.inputs[0] == c->op.inputs[1]) return 0;
        f->adds = 1;
        f->other = c->op.inputs[c->op.inputs[0] == before];
        f->sum = ln_finish_of(c->op.activation, 0.0f);
        return 1;
    case LN_OP_MAXPOOL2D:
        if (f->adds || f->pool || s->call.op.id != LN_OP_CONV2D || !halves(c)) return 0;
        f->pool = 1;
        return 1;
    default: return 0;
    }
}

/* What follows operator i and is all that sees its output, or the output of one that was taken up before. */
static follow what_follows(const ln_builder *b, uint32_t i, const ln_step *s)
{
    follow f = {1, 0, 0, 0, s->call.op.activation, 0.0f, NULL, s->product.finish};
    ln_tensor y = s->call.out;
    uint32_t before = s->call.op.output;
    if (s->call.op.id == LN_OP_EMBED_PROJECTION || s->run == ln_step_op) return f;
    for (uint32_t k = i + 1; k < b->m->op_count && !y.is_output && y.last == k; k++) {
        ln_call next;
        ln_load_call(b->m, k, &next);
        if (!takes(&f, &next, before, s)) break;
        f.count++;
        y = next.out;
        before = next.op.output;
    }
    return f;
}

void ln_plan_joined(ln_builder *b, uint32_t i, const ln_step *alone, ln_step *s)
{
    const follow f = what_follows(b, i, alone);
    const int choice = b->choice;
    ln_step made;
    ln_op last;
    ln_tensor y;

    *s = (ln_step){0};
    if (f.count == 1) return;
    b->choice = alone->run == ln_step_wino ? (int)alone->wino.m : LN_DIRECT; /* as alone, with the same weights */
    ln_plan_op(b, i, f.pool, &made);
    b->choice = choice;
    if (made.run == ln_step_op) return;
    ln_get_op(b->m, i + f.count - 1, &last);
    ln_get_tensor(b->m, last.output, &y);
    made.y = ln_plan_place(b->m, last.output);
    made.count = f.count;
    made.adds = f.adds;
    if (f.adds) {
        made.other = ln_plan_place(b->m, f.other);
        if (overlap(&made.y, y.elements, &made.other, y.elements) && made.y.at != made.other.at) return;
    }
    ln_finish *finish = &made.product.finish;
    if (f.act != alone->call.op.activation) *finish = ln_finish_of(f.act, f.alpha);
    made.call.op.activation = (uint8_t)f.act;
    finish->slopes = f.slopes;
    finish->sum_lo = f.sum.lo;
    finish->sum_hi = f.sum.hi;
    made.wino.finish = *finish;
    made.wino.weights = alone->wino.weights;
    made.wino.bias = alone->wino.bias;
    if (overlap(&made.y, y.elements, &made.x[0], made.call.in[0].elements) && made.framed.C == 0) {
        made.detour = y.elements;
        made.scratch_bytes += ((uint64_t)y.elements * sizeof(float) + 63) & ~(uint64_t)63;
    }
    *s = made;
}

/* ---- chains */

enum { CHAIN_WEIGHTS = 1 << 18, STRIP_BYTES = 1 << 18 }; /* at most: of all products; of what lies between steps */

/* The step that a run takes for operator i. */
static ln_step step_at(ln_builder *b, uint32_t i)
{
    ln_step alone, joined;
    ln_plan_op(b, i, 0, &alone);
    ln_plan_joined(b, i, &alone, &joined);
    return joined.run ? joined : alone;
}

/* Is what this step gives, the output of operator `last`, seen by the next operator alone, as its only input? */
static int leads_on(const ln_builder *b, uint32_t last)
{
    ln_op op, next;
    ln_tensor y;
    ln_get_op(b->m, last, &op);
    ln_get_tensor(b->m, op.output, &y);
    if (y.is_output || y.last != last + 1) return 0;
    ln_get_op(b->m, last + 1, &next);
    return next.n_inputs == 1;
}

static int is_plain_product(const ln_step *s)
{
    return s->run == ln_step_product && s->call.op.id == LN_OP_CONV2D && s->groups == 1 && !s->product.pool;
}

/* One row of input for one of output, in one piece. */
static int is_pointwise(const ln_step *s)
{
    const ln_product *p = &s->product;
    return is_plain_product(s) && s->framed.C == 0 && p->n_u * p->n_v == 1 && p->n == p->K && p->step_j == p->K
        && p->step_i == (size_t)p->Wo * p->K;
}

/* Does what this step sees leave the second cache, so that a chain pays? */
static int is_large(const ln_builder *b, const ln_step *s)
{
    return b->choice == LN_CHAINS || s->call.in[0].bytes > LN_SECOND_CACHE;
}

static uint64_t weight_bytes(const ln_step *s)
{
    return (uint64_t)s->product.O * s->product.K * sizeof(float);
}

/* The steps of a chain that begins with stage[0], which is operator i; returns their number. */
static uint32_t find_stages(ln_builder *b, uint32_t i, ln_step *stage)
{
    uint64_t bytes = weight_bytes(&stage[0]);
    uint32_t n = 1, next = i + stage[0].count;
    while (n < LN_CHAIN_MOST && next < b->m->op_count && leads_on(b, next - 1) && !stage[n - 1].adds) {
        ln_step *s = &stage[n];
        *s = step_at(b, next);
        bytes += weight_bytes(s);
        const int depthwise = s->run == ln_step_depthwise && s->window.kh * s->window.kw <= LN_DEPTHWISE_TAPS;
        const int behind_one = stage[n - 1].run == ln_step_depthwise; /* what it gives is best taken up at once */
        if (!depthwise && !is_pointwise(s)) break;
        if (!is_large(b, s) && !(behind_one && !depthwise)) break;
        if (b->choice != LN_CHAINS && bytes > CHAIN_WEIGHTS) break;
        next += s->count;
        n++;
    }
    return n;
}

/* How many lines each step keeps where the last makes `lines` at a time; returns floats of all. */
static uint64_t keep_lines(ln_step *stage, uint32_t n, uint32_t lines)
{
    uint64_t floats = 0;
    for (uint32_t k = n; k-- > 0;) {
        const ln_window *g = &stage[k].window;
        stage[k].lines = k + 1 < n ? lines : 0; /* the last writes to the output */
        floats += (uint64_t)stage[k].lines * stage[k].call.out.dims[1] * stage[k].call.out.dims[2];
        if (stage[k].run == ln_step_depthwise) lines = (lines - 1) * (uint32_t)g->sh + (uint32_t)((g->kh - 1) * g->dh) + 1;
    }
    return floats;
}

void ln_plan_chain(ln_builder *b, uint32_t i, const ln_step *alone, ln_step *joined)
{
    ln_step stage[LN_CHAIN_MOST];
    stage[0] = joined->run ? *joined : *alone;
    if (!is_plain_product(&stage[0])) return;
    const uint32_t n = find_stages(b, i, stage);
    if (n == 1) return;

    ln_step made = stage[0];
    const ln_step *end = &stage[n - 1];
    const uint32_t Ho = end->call.out.dims[0], workers = b->pool ? b->pool->threads : 1;
    made.run = ln_step_chain;
    made.stages = n;
    made.y = end->y;
    made.other = end->other;
    made.adds = end->adds;
    made.count = made.lines = 0;
    made.cycles = 0;
    made.detour = 0;
    for (uint32_t k = 0; k < n; k++) {
        made.count += stage[k].count;
        made.cycles += stage[k].cycles;
    }
    made.parts = ln_plan_parts(b, &made);
    if (made.parts > 1 + Ho / 8) made.parts = 1 + Ho / 8; /* at the edge of a part lines are made twice */
    do made.lines++;
    while (b->choice != LN_CHAINS && made.lines < Ho && keep_lines(stage, n, made.lines + 1) * sizeof(float) <= STRIP_BYTES);
    const uint64_t each = (keep_lines(stage, n, made.lines) + 15) / 16 * 16;
    const uint64_t frame = made.framed.C ? (uint64_t)made.framed.Ho * (uint64_t)made.framed.Wo * made.pixel : 0;
    made.worker_scratch = (size_t)each;
    made.scratch_bytes = ((frame + 15) / 16 * 16 + each * workers) * sizeof(float);
    const uint32_t floats = end->call.out.elements;
    if (overlap(&made.y, floats, &made.x[0], made.call.in[0].elements) && made.framed.C == 0) {
        made.detour = floats;
        made.scratch_bytes += ((uint64_t)floats * sizeof(float) + 63) & ~(uint64_t)63;
    }
    if (made.scratch_bytes > UINT32_MAX / 2) return;
    made.chain = ln_plan_take(b, n * sizeof *stage);
    for (uint32_t k = 0; k < n && made.chain; k++) made.chain[k] = stage[k];
    *joined = made;
}
