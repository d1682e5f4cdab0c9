/* Several operators as one step: what follows a sum is done before it is stored; and a convolution goes line by line
 * into the depthwise one behind it. Only for a run of which nobody watches the operators. */
#include "ln_cold.h"
#include "fast_int8.h"

/* ---- what follows a sum */

typedef struct follow { /* what was found to follow */
    uint32_t count;     /* operators, the first included */
    uint32_t pool, adds, other; /* other: the tensor that is added */
    uint32_t act;       /* LN_ACT_*, where an operator of its own activates, else the first's own */
    float alpha;
    const float *slopes;
    ln_finish sum;      /* lo and hi: what clamps the sum */
} follow;

int ln_plan_overlap(const ln_place *a, uint64_t a_floats, const ln_place *b, uint64_t b_floats)
{
    return a->base == b->base && a->at < b->at + b_floats && b->at < a->at + a_floats;
}

static int is_clamp(uint32_t act)
{
    return act == LN_ACT_NONE || act == LN_ACT_RELU || act == LN_ACT_RELU6;
}

int ln_plan_halves(const ln_call *c) /* does this maxpool2d keep the largest of each 2 x 2? */
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
    const int bare = f->act == LN_ACT_NONE && f->count == 1;
    switch (c->op.id) {
    case LN_OP_PRELU:
        if (f->slopes || f->adds || f->pool) return 0;
        f->slopes = ln_floats(c->w);
        return 1;
    case LN_OP_ACTIVATION: {
        ln_activation_attrs a;
        ln_activation_decode(c->op.attrs, &a);
        if (f->adds && is_clamp(c->op.activation) && f->sum.lo == -LN_INFINITE && f->sum.hi == LN_INFINITE) {
            f->sum = ln_finish_of(c->op.activation, 0.0f);
            return 1;
        }
        if (!bare) return 0;
        f->act = c->op.activation;
        f->alpha = a.alpha;
        return 1;
    }
    case LN_OP_ADD:
        if (f->adds || f->pool || !is_clamp(c->op.activation)) return 0;
        if (c->op.inputs[0] == c->op.inputs[1]) return 0;
        f->adds = 1;
        f->other = c->op.inputs[c->op.inputs[0] == before];
        f->sum = ln_finish_of(c->op.activation, 0.0f);
        return 1;
    case LN_OP_MAXPOOL2D:
        if (f->adds || f->pool || s->call.op.id != LN_OP_CONV2D || !ln_plan_halves(c)) return 0;
        f->pool = 1;
        return 1;
    default: return 0;
    }
}

/* What follows operator i and is all that sees its output, or the output of one that was taken up before. */
static follow what_follows(const ln_builder *b, uint32_t i, const ln_step *s)
{
    follow f = {1, 0, 0, 0, s->call.op.activation, 0.0f, NULL, ln_finish_of(LN_ACT_NONE, 0.0f)};
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

/* s: operator i and what follows its sums; run is NULL where nothing does, or where memory forbids it. */
static void join_followers(ln_builder *b, uint32_t i, const ln_step *alone, ln_step *s)
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
        if (ln_plan_overlap(&made.y, y.elements, &made.other, y.elements) && made.y.at != made.other.at) return;
    }
    ln_finish *finish = made.run == ln_step_depthwise ? &made.depthwise.put.finish : &made.product.finish;
    if (f.act != alone->call.op.activation) *finish = ln_finish_of(f.act, f.alpha);
    finish->slopes = f.slopes;
    finish->sum_lo = f.sum.lo;
    finish->sum_hi = f.sum.hi;
    made.wino.finish = *finish;
    made.wino.weights = alone->wino.weights;
    made.wino.bias = alone->wino.bias;
    if (ln_plan_overlap(&made.y, y.elements, &made.x[0], made.call.in[0].elements) && made.framed.C == 0) {
        made.detour = y.elements;
        made.scratch_bytes += ((uint64_t)y.elements * sizeof(float) + 63) & ~(uint64_t)63;
    }
    *s = made;
}

/* ---- a convolution, and the depthwise one that reads what it makes */

/* Line by line a convolution is a little slower, which pays where its output would leave the nearest cache. */
enum { FAR_BYTES = 64 << 10 };

/* s: first, which begins with operator i, and the depthwise convolution behind it, where that can be and pays; else it
 * stays as it is. */
static void join_depthwise(ln_builder *b, uint32_t i, const ln_step *first, const ln_place *between, ln_step *s)
{
    const uint32_t next = i + first->count;
    ln_step alone, joined, made;
    ln_op last;
    ln_tensor y;
    if (first->call.op.id != LN_OP_CONV2D || first->run != ln_step_product || first->adds) return;
    if (next >= b->m->op_count || (b->choice == LN_CHOOSE && first->call.out.bytes < FAR_BYTES)) return;
    ln_get_op(b->m, next - 1, &last);
    ln_get_tensor(b->m, last.output, &y);
    if (y.is_output || y.last != next) return;
    ln_plan_op(b, next, 0, &alone);
    if (alone.run != ln_step_depthwise) return;
    join_followers(b, next, &alone, &joined);
    if (!(joined.run && ln_plan_line_by_line(b, first, &joined, between, &made))
        && !ln_plan_line_by_line(b, first, &alone, between, &made))
        return;
    *s = made;
    s->depthwise.source = &s->product;
}

void ln_plan_joined(ln_builder *b, uint32_t i, const ln_step *alone, ln_step *s)
{
    if (ln_touches_i8(&alone->call)) {
        ln_plan_int8_joined(b, i, alone, s);
        return;
    }
    join_followers(b, i, alone, s);
    join_depthwise(b, i, s->run ? s : alone, &alone->y, s);
}

#include "ln_cold_end.h"
