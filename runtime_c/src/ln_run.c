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
    op->weights_at = ln_u32(r + 16);
    op->weights_bytes = ln_u32(r + 20);
    op->scratch_at = ln_u32(r + 24);
    op->scratch_bytes = ln_u32(r + 28);
    op->attrs = r + LN_ATTRS_AT;
}

void ln_get_tensor(const ln_model *m, uint32_t index, ln_tensor *tensor)
{
    const uint8_t *r = m->bin + ln_tensor_record(m, index);

    tensor->arena_at = ln_u32(r);
    tensor->dtype = r[4];
    tensor->rank = r[5];
    tensor->is_input = r[6] & LN_FLAG_INPUT;
    tensor->is_output = (r[6] & LN_FLAG_OUTPUT) != 0;
    tensor->zero_point = r[7] < 128 ? r[7] : (int32_t)r[7] - 256;
    tensor->elements = 1;
    for (int d = 0; d < 4; d++) {
        tensor->dims[d] = ln_u32(r + 8 + 4 * d);
        if (d < tensor->rank) tensor->elements *= tensor->dims[d];
    }
    tensor->bytes = 4 * tensor->elements;
    tensor->scale = ln_f32(r + 24);
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

/* Elements of the outputs among tensors [0, end): where the values of output `end` stand in `out`. */
LN_COLD static size_t output_elements(const ln_model *m, uint32_t end)
{
    size_t sum = 0;
    ln_tensor t;

    for (uint32_t i = 0; i < end; i++) {
        ln_get_tensor(m, i, &t);
        if (t.is_output) sum += t.elements;
    }
    return sum;
}

LN_COLD size_t ln_output_elements(const ln_model *m)
{
    return m->len ? output_elements(m, m->tensor_count) : 0;
}

LN_COLD void ln_get_preprocessing(const ln_model *m, ln_preprocessing *p)
{
    const uint8_t *b = m->bin;

    p->resize = b[96];
    p->fit = b[97];
    p->color = b[98];
    p->invert = b[99];
    p->pad = b[124];
    for (int c = 0; c < 3; c++) {
        p->mean[c] = ln_f32(b + 100 + 4 * c);
        p->std[c] = ln_f32(b + 112 + 4 * c);
    }
}

void ln_load_call(const ln_model *m, uint32_t index, ln_call *c)
{
    ln_get_op(m, index, &c->op);
    for (uint32_t k = 0; k < 4; k++) {
        c->x[k] = NULL;
        if (k < c->op.n_inputs) ln_get_tensor(m, c->op.inputs[k], &c->in[k]);
    }
    ln_get_tensor(m, c->op.output, &c->out);
    c->y = NULL;
    c->w = c->op.weights_bytes ? m->bin + c->op.weights_at : NULL;
    c->scratch = NULL;
}

static void run_op(const ln_call *c)
{
    switch (c->op.id) {
#define LN_OP(id, NAME, name, n_inputs, inplace_mask) \
    case id: ln_##name##_run(c); break;
#include "ln_ops.def"
    }
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

/* x * 0 is 0, or NaN where x is NaN or infinite. */
LN_COLD ln_status ln_check_input(const ln_model *m, const float *in)
{
    if (m == NULL || in == NULL) return LN_NULL_POINTER;
    const float *end = in + ln_input_elements(m);
    const ln_vec4 none = ln_set4(0.0f, 0.0f, 0.0f, 0.0f);
    ln_vec8 sum = {none, none};
    float t[8], all = 0.0f;

    for (; end - in >= 8; in += 8) sum = ln_mac8(sum, 0.0f, ln_load8(in));
    ln_store8(t, sum);
    for (int k = 0; k < 8; k++) all += t[k];
    while (in < end) all += *in++ * 0.0f;
    return all == 0.0f ? LN_OK : LN_INPUT_NOT_FINITE;
}

ln_status ln_run_each(const ln_model *m, void *arena, size_t arena_bytes, const float *in, float *out,
                      ln_after_op after, void *user)
{
    if (m == NULL) return LN_NULL_POINTER;
    if (m->len == 0) return m->status != LN_OK ? m->status : LN_NULL_POINTER; /* not open */
    const size_t need = ln_arena_bytes(m);
    if (in == NULL || out == NULL || (arena == NULL && need)) return LN_NULL_POINTER;
    if (arena_bytes < need) return LN_ARENA_TOO_SMALL;
    if ((uintptr_t)arena % 16) return LN_ARENA_MISALIGNED;
    if (m->fast) return m->fast->run(m, arena, in, out, after, user);

    for (uint32_t i = 0; i < m->op_count; i++) {
        ln_call c;
        ln_load_call(m, i, &c);
        for (uint32_t k = 0; k < c.op.n_inputs; k++) {
            const ln_tensor *t = &c.in[k];
            c.x[k] = t->is_input    ? in
                     : t->is_output ? out + output_elements(m, c.op.inputs[k])
                                    : (const float *)arena + t->arena_at / sizeof(float);
        }
        c.y = c.out.is_output ? out + output_elements(m, c.op.output)
                              : (float *)arena + c.out.arena_at / sizeof(float);
        if (c.op.scratch_bytes) c.scratch = (float *)arena + c.op.scratch_at / sizeof(float);
        run_op(&c);
        if (after && after(user, i, &c.op, &c.out, c.y)) return LN_STOPPED;
    }
    return LN_OK;
}

ln_status ln_run(const ln_model *m, void *arena, size_t arena_bytes, const float *in, float *out)
{
    return ln_run_each(m, arena, arena_bytes, in, out, NULL, NULL);
}
