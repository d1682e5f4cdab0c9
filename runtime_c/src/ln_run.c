/* ln_run: walk the program. ln_open has checked everything, so the walk decides and tests nothing: it takes each
 * operator record, finds the places of its tensors, and calls the operator. */
#include "ln_internal.h"
#include "ln_vec8.h"

void ln_get_op(const ln_model *m, uint32_t index, ln_op *op)
{
    const uint8_t *r = m->bin + ln_op_record(m, index);

    op->id = ln_u16(r);
    op->activation = r[2];
    op->algorithm = r[3];
    for (int k = 0; k < 4; k++) op->inputs[k] = ln_u16(r + 4 + 2 * k);
    op->output = ln_u16(r + 12);
    op->n_inputs = r[14];
    op->weight_dtype = r[15];
    op->weights_at = ln_word_at(r + 16);
    op->weights_bytes = ln_word_at(r + 20);
    op->scratch_at = ln_word_at(r + 24);
    op->scratch_bytes = ln_word_at(r + 28);
    op->attrs = r + LN_ATTRS_AT;
}

void ln_get_tensor(const ln_model *m, uint32_t index, ln_tensor *tensor)
{
    const uint8_t *r = m->bin + ln_tensor_record(m, index);
    uint32_t elements = 1;

    tensor->arena_at = ln_word_at(r);
    tensor->dtype = r[4];
    tensor->rank = r[5];
    tensor->is_input = r[6] & LN_FLAG_INPUT;
    tensor->is_output = (r[6] & LN_FLAG_OUTPUT) != 0;
    tensor->zero_point = (int8_t)r[7];
    for (uint32_t d = 0; d < 4; d++) {
        const uint32_t dim = ln_word_at(r + 8 + 4 * d);
        tensor->dims[d] = dim;
        if (d < r[5]) elements *= dim;
    }
    tensor->elements = elements;
    tensor->bytes = ln_i8_type(r[4]) ? elements : 4 * elements;
    tensor->scale = ln_float_of(ln_word_at(r + 24));
    tensor->first = ln_u16(r + 28);
    tensor->last = ln_u16(r + 30);
}

size_t ln_arena_bytes(const ln_model *m)
{
    return m->len ? (size_t)m->arena_bytes + m->fast_bytes : 0;
}

LN_COLD size_t ln_input_elements(const ln_model *m)
{
    ln_tensor t;

    if (m->len == 0) return 0;
    ln_get_tensor(m, 0, &t);
    return t.elements;
}

LN_COLD size_t ln_input_bytes(const ln_model *m)
{
    ln_tensor t;

    if (m->len == 0) return 0;
    ln_get_tensor(m, 0, &t);
    return t.bytes;
}

LN_COLD size_t ln_output_elements(const ln_model *m)
{
    size_t sum = 0;
    ln_tensor t;

    for (uint32_t i = 0; m->len && i < m->tensor_count; i++) {
        ln_get_tensor(m, i, &t);
        if (t.is_output) sum += t.elements;
    }
    return sum;
}

/* Bytes of `out` that the outputs among tensors [0, end) take; where `end` is an output, *next is where it begins. */
static LN_COLD size_t output_bytes(const ln_model *m, uint32_t end, size_t *next)
{
    size_t sum = 0;
    ln_tensor t;

    *next = 0;
    for (uint32_t i = 0; i < end; i++) {
        ln_get_tensor(m, i, &t);
        if (!t.is_output) continue;
        sum = *next + t.bytes;
        *next = (sum + 3) & ~(size_t)3;
    }
    return sum;
}

LN_COLD size_t ln_output_bytes(const ln_model *m)
{
    size_t next;

    return m->len ? output_bytes(m, m->tensor_count, &next) : 0;
}

void ln_load_call(const ln_model *m, uint32_t index, ln_call *c)
{
    ln_get_op(m, index, &c->op);
    for (uint32_t k = 0; k < LN_MOST_INPUTS; k++) {
        c->x[k] = NULL;
        c->qx[k] = NULL;
        if (k < c->op.n_inputs) ln_get_tensor(m, c->op.inputs[k], &c->in[k]);
    }
    ln_get_tensor(m, c->op.output, &c->out);
    c->y = NULL;
    c->qy = NULL;
    c->w = c->op.weights_bytes ? m->bin + c->op.weights_at : NULL;
    c->scratch = NULL;
}

#ifdef LN_WITH_I8
static void run_i8(const ln_call *c)
{
    switch (c->op.id) {
#define LN_OP_I8(id, NAME, name, takes) \
    case id: ln_##name##_i8_run(c); break;
#include "ln_ops_i8.def"
    }
}
#endif

#ifdef LN_WITH_F32
static void run_f32(const ln_call *c) /* and what leads from one type to the other */
{
    switch (c->op.id) {
#define LN_OP(id, NAME, name, n_inputs, inplace_mask) \
    case id: ln_##name##_run(c); break;
#include "ln_ops.def"
    }
}

#endif

void ln_run_op(const ln_call *c)
{
#ifdef LN_WITH_I8
    if (ln_is_i8(c)) run_i8(c);
#endif
#ifdef LN_WITH_F32
    if (!ln_is_i8(c)) run_f32(c);
#endif
}

LN_COLD uint64_t ln_op_macs(const ln_model *m, uint32_t index)
{
    ln_call c;

    if (m->len == 0) return 0;
    ln_load_call(m, index, &c);
    switch (c.op.id) {
#define LN_OP(id, NAME, name, n_inputs, inplace_mask) \
    case id: return ln_##name##_macs(&c);
#include "ln_ops.def"
    }
    return 0;
}

#ifdef LN_WITH_F32
/* Is each of v[0..n) a number? A chip looks at the exponents; others add up x * 0, which is 0, or NaN where x is NaN or
 * infinite. */
#if defined(LN_SMALL) && !defined(__wasm_simd128__)
int ln_all_finite(const float *v, uint32_t n)
{
    for (; n; n--)
        if (!ln_is_number(*v++)) return 0;
    return 1;
}
#else
int ln_all_finite(const float *v, uint32_t n)
{
    const float *end = v + n;
    const ln_vec4 none = ln_set4(0.0f, 0.0f, 0.0f, 0.0f);
    ln_vec8 sum = {none, none};
    float t[8], all = 0.0f;

    for (; end - v >= 8; v += 8) sum = ln_mac8(sum, 0.0f, ln_load8(v));
    ln_store8(t, sum);
    for (int k = 0; k < 8; k++) all += t[k];
    while (v < end) all += *v++ * 0.0f;
    return all == 0.0f;
}
#endif
#endif

LN_COLD ln_status ln_check_usable(const ln_model *m, const void *from, const void *to)
{
    if (m == NULL || from == NULL || to == NULL) return LN_NULL_POINTER;
    return m->len != 0 ? LN_OK : m->status != LN_OK ? m->status : LN_NULL_POINTER; /* not open */
}

LN_COLD ln_status ln_check_input(const ln_model *m, const void *in)
{
    const ln_status usable = ln_check_usable(m, in, in);

    if (usable != LN_OK) return usable;
#ifdef LN_WITH_F32
    ln_tensor x;
    ln_get_tensor(m, 0, &x);
    if (!ln_i8_type(x.dtype) && !ln_all_finite(in, x.elements)) return LN_INPUT_NOT_FINITE;
#endif
    return LN_OK;
}

/* The place of tensor `index`, which is t, that is only read where it is the input. */
static LN_APART void *place_of(const ln_model *m, const ln_tensor *t, uint32_t index, const ln_places *at)
{
    size_t next;

    if (t->is_input) return (void *)(uintptr_t)at->in;
    if (!t->is_output) return at->arena + t->arena_at;
    output_bytes(m, index, &next);
    return at->out + next;
}

void ln_set_places(const ln_model *m, ln_call *c, const ln_places *at)
{
    for (uint32_t k = 0; k < c->op.n_inputs; k++) {
        const void *x = place_of(m, &c->in[k], c->op.inputs[k], at);
        if (ln_i8_type(c->in[k].dtype)) c->qx[k] = x;
        else c->x[k] = x;
    }
    void *y = place_of(m, &c->out, c->op.output, at);
    if (ln_i8_type(c->out.dtype)) c->qy = y;
    else c->y = y;
    if (c->op.scratch_bytes) c->scratch = (float *)(void *)(at->arena + c->op.scratch_at);
}

ln_status ln_run_each(const ln_model *m, void *arena, size_t arena_bytes, const void *in, void *out,
                      ln_after_op after, void *user)
{
    if (m == NULL) return LN_NULL_POINTER;
    if (m->len == 0) return m->status != LN_OK ? m->status : LN_NULL_POINTER; /* not open */
    const size_t need = ln_arena_bytes(m);
    if (in == NULL || out == NULL || (arena == NULL && need)) return LN_NULL_POINTER;
    if (arena_bytes < need) return LN_ARENA_TOO_SMALL;
    if ((uintptr_t)arena % 16) return LN_ARENA_MISALIGNED;
    if (m->fast) return m->fast->run(m, arena, in, out, after, user);

    const ln_places at = {in, arena, out};
    for (uint32_t i = 0; i < m->op_count; i++) {
        ln_call c;
        ln_load_call(m, i, &c);
        ln_set_places(m, &c, &at);
        ln_run_op(&c);
        if (after && after(user, i, &c.op, &c.out, c.qy ? (const void *)c.qy : c.y)) return LN_STOPPED;
    }
    return LN_OK;
}

ln_status ln_run(const ln_model *m, void *arena, size_t arena_bytes, const void *in, void *out)
{
    return ln_run_each(m, arena, arena_bytes, in, out, NULL, NULL);
}
