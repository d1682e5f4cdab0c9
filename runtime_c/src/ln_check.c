/* ln_check_records: may ln_run walk this program without looking? Part of ln_open.
 *
 * Passes, each relying on the ones before:
 *   tensors   every tensor record alone: type, shape, place in the arena
 *   ops       every operator record alone: number, indices, weights, scratch, attributes
 *   lifetimes a tensor is written by the operator it calls first and last read by the one it calls last
 *   order     operators read only what earlier ones wrote, and each operator's own shape rule
 *   arena     no two tensors that live at the same time share bytes
 * The last looks at operators x tensors, at most 4096 x 4097 pairs; the others are linear. */
#include "ln_cold.h"
#include "ln_internal.h"

static int fits(uint32_t len, uint32_t at, uint32_t n) /* [at, at+n) inside len bytes */
{
    return at <= len && n <= len - at;
}

/* ---- tensors */

static ln_status check_type(ln_model *m, uint32_t i) /* one that this build has, and that the file says it has */
{
    const uint32_t rec = ln_tensor_record(m, i);
    const uint8_t type = m->bin[rec + 4];

#ifdef LN_WITH_I8
    if (type == LN_I8 && m->features & LN_FEATURE_I8) return LN_OK;
#endif
#ifdef LN_WITH_F32
    if (type == LN_F32) return LN_OK;
#else
    if (type == LN_F32) return ln_fail(m, LN_UNKNOWN_OP, (int32_t)i, rec, type, LN_I8);
#endif
    return ln_fail(m, LN_BAD_DTYPE, (int32_t)i, rec + 4, type, LN_F32);
}

/* rank and dims of tensor i follow the one rule; *elements is their product. */
static ln_status check_shape(ln_model *m, uint32_t i, uint32_t *elements)
{
    const uint32_t rec = ln_tensor_record(m, i);
    const uint8_t *r = m->bin + rec;
    uint64_t product = 1;

    if (r[5] < 1 || r[5] > 4) return ln_fail(m, LN_BAD_RANK, (int32_t)i, rec + 5, r[5], 4);
    for (uint32_t d = 0; d < 4; d++) {
        const uint32_t at = rec + 8 + 4 * d, dim = ln_word_at(m->bin + at);
        if ((d < r[5]) != (dim > 0)) return ln_fail(m, LN_BAD_DIM, (int32_t)i, at, dim, d < r[5]);
        if (d >= r[5]) continue;
        product = (uint64_t)(uint32_t)product * dim; /* below 2^30 * 2^32 */
        if (product > LN_MAX_ELEMENTS)
            return ln_fail(m, LN_TENSOR_TOO_LARGE, (int32_t)i, at, product, LN_MAX_ELEMENTS);
    }
    *elements = (uint32_t)product;
    return LN_OK;
}

static ln_status check_tensors(ln_model *m)
{
    uint32_t elements = 0, out_elements = 0;
    ln_status s;

    for (uint32_t i = 0; i < m->tensor_count; i++) {
        const uint32_t rec = ln_tensor_record(m, i);
        const uint8_t *r = m->bin + rec;
        if ((s = check_type(m, i)) != LN_OK) return s;
        if ((s = check_shape(m, i, &elements)) != LN_OK) return s;
        if (i == 0 ? r[6] != LN_FLAG_INPUT : r[6] != 0 && r[6] != LN_FLAG_OUTPUT)
            return ln_fail(m, LN_BAD_FLAGS, (int32_t)i, rec + 6, r[6], i == 0 ? LN_FLAG_INPUT : LN_FLAG_OUTPUT);
        if ((s = ln_check_scale(m, i)) != LN_OK) return s;

        const uint32_t bytes = ln_i8_type(r[4]) ? elements : 4 * elements, at = ln_word_at(r);
        if (r[6]) {
            if (at) return ln_fail(m, LN_OUTSIDE_ARENA, (int32_t)i, rec, at, 0);
        } else {
            if (at % 16) return ln_fail(m, LN_MISALIGNED, (int32_t)i, rec, at, 16);
            if (!fits(m->arena_bytes, at, bytes))
                return ln_fail(m, LN_OUTSIDE_ARENA, (int32_t)i, rec, (uint64_t)at + bytes, m->arena_bytes);
        }
        if (r[6] == LN_FLAG_OUTPUT) {
#ifndef LN_TERSE
            if (out_elements == 0 && (s = ln_check_header_shape(m, i, 25, 44)) != LN_OK) return s;
#endif
            out_elements += elements; /* below 2^31 */
            if (out_elements > LN_MAX_ELEMENTS)
                return ln_fail(m, LN_TENSOR_TOO_LARGE, (int32_t)i, rec + 8, out_elements, LN_MAX_ELEMENTS);
        }
    }
    if (out_elements == 0) return ln_fail(m, LN_BAD_FLAGS, -1, 90, 0, LN_FLAG_OUTPUT);
#ifdef LN_TERSE
    return LN_OK;
#else
    return ln_check_header_shape(m, 0, 24, 28);
#endif
}

/* ---- operators */

static ln_status check_indices(ln_model *m, uint32_t i, const ln_op *op, uint32_t n_inputs)
{
    const uint32_t rec = ln_op_record(m, i);

    if (op->n_inputs != n_inputs)
        return ln_fail(m, LN_BAD_TENSOR_INDEX, (int32_t)i, rec + 14, op->n_inputs, n_inputs);
    for (uint32_t k = 0; k < 4; k++)
        if (k < n_inputs ? op->inputs[k] >= m->tensor_count : op->inputs[k] != LN_NO_TENSOR)
            return ln_fail(m, LN_BAD_TENSOR_INDEX, (int32_t)i, rec + 4 + 2 * k, op->inputs[k],
                           k < n_inputs ? m->tensor_count : LN_NO_TENSOR);
    if (op->output >= m->tensor_count)
        return ln_fail(m, LN_BAD_TENSOR_INDEX, (int32_t)i, rec + 12, op->output, m->tensor_count);
    return LN_OK;
}

static ln_status check_weights(ln_model *m, uint32_t i, const ln_op *op, const ln_op_facts *facts)
{
    const uint32_t layout = facts->layout;
    const int i8 = ln_i8_type(m->bin[ln_tensor_record(m, op->output) + 4]);
    const uint32_t rec = ln_op_record(m, i), at = op->weights_at, bytes = op->weights_bytes;
    const int takes_f16 = layout == LN_LAYOUT_PANELS || layout == LN_LAYOUT_DEPTHWISE;

    const int has = i8 ? (facts->int8 & LN_INT8_WEIGHTS) != 0 : layout != LN_LAYOUT_NONE;
    const uint32_t type = i8 && has ? LN_I8 : LN_F32;

    if (op->weight_dtype != type &&
        !(op->weight_dtype == LN_F16 && !i8 && takes_f16 && m->features & LN_FEATURE_F16))
        return ln_fail(m, LN_BAD_DTYPE, (int32_t)i, rec + 15, op->weight_dtype, type);
    if (!has) {
        if (at) return ln_fail(m, LN_BAD_WEIGHTS, (int32_t)i, rec + 16, at, 0);
        if (bytes) return ln_fail(m, LN_BAD_WEIGHTS, (int32_t)i, rec + 20, bytes, 0);
        return LN_OK;
    }
    if (at % 64) return ln_fail(m, LN_MISALIGNED, (int32_t)i, rec + 16, at, 64);
    if (at < LN_HEADER_BYTES || bytes == 0 || !fits(m->weights_bytes, at - LN_HEADER_BYTES, bytes))
        return ln_fail(m, LN_BAD_WEIGHTS, (int32_t)i, rec + 16, (uint64_t)at + bytes,
                       LN_HEADER_BYTES + (uint64_t)m->weights_bytes);
    return LN_OK;
}

static uint32_t place_of(uint32_t id, uint32_t index) /* of an attribute, among the 32 bytes */
{
#ifdef LN_TERSE
    (void)id, (void)index;
    return 0;
#else
    return ln_attr_of(id, index)->at;
#endif
}

static ln_status check_attributes(ln_model *m, uint32_t i, const ln_op *op, const ln_op_facts *facts)
{
    const uint32_t rec = ln_op_record(m, i);
    const int bad = ln_attrs_check(op->id, op->attrs);

    if (bad) {
        return ln_fail(m, LN_BAD_ATTRIBUTE, (int32_t)i, rec + LN_ATTRS_AT + place_of(op->id, (uint32_t)bad - 1),
                       (uint32_t)bad, 0);
    }
    const int i8 = ln_i8_type(m->bin[ln_tensor_record(m, op->output) + 4]);
    const uint32_t end = i8 ? LN_QUANT_AT : LN_OP_BYTES - LN_ATTRS_AT;
    for (uint32_t k = facts->attr_bytes; k < end; k++) /* a newer version may use them */
        if (op->attrs[k])
            return ln_fail(m, LN_BAD_ATTRIBUTE, (int32_t)i, rec + LN_ATTRS_AT + k, 0, op->attrs[k]);
    return LN_OK;
}

static int has_algorithms(uint32_t id) /* besides 0; in a build for chips none */
{
#ifdef LN_TERSE
    return (void)id, 0;
#else
    return id == LN_OP_CONV2D;
#endif
}

static ln_status check_op(ln_model *m, uint32_t i)
{
    const uint32_t rec = ln_op_record(m, i);
    ln_op op;
    ln_status s;

    ln_get_op(m, i, &op);
    const ln_op_facts *facts = ln_facts(op.id);
    if (facts == NULL) return ln_fail(m, LN_UNKNOWN_OP, (int32_t)i, rec, op.id, 0);
    if (!ln_has_activation(op.activation) || (op.activation && !facts->activation))
        return ln_fail(m, LN_BAD_ACTIVATION, (int32_t)i, rec + 2, op.activation,
                       facts->activation ? LN_ACT_END : 0);
    if (op.algorithm && !has_algorithms(op.id)) /* those of conv2d are for its own shape rule */
        return ln_fail(m, LN_BAD_ALGORITHM, (int32_t)i, rec + 3, op.algorithm, 0);
    if ((s = check_indices(m, i, &op, facts->n_inputs)) != LN_OK) return s;
    if ((s = ln_check_types(m, i, &op, facts)) != LN_OK) return s;
    if (op.activation > LN_ACT_RELU6 && op.id != LN_OP_ACTIVATION
        && ln_i8_type(m->bin[ln_tensor_record(m, op.output) + 4]))
        return ln_fail(m, LN_BAD_ACTIVATION, (int32_t)i, rec + 2, op.activation, LN_ACT_RELU6 + 1);
    if ((s = check_weights(m, i, &op, facts)) != LN_OK) return s;
    if (op.scratch_at % 16) return ln_fail(m, LN_MISALIGNED, (int32_t)i, rec + 24, op.scratch_at, 16);
    if (!fits(m->arena_bytes, op.scratch_at, op.scratch_bytes) || (op.scratch_at && !op.scratch_bytes))
        return ln_fail(m, LN_BAD_SCRATCH, (int32_t)i, rec + 24, (uint64_t)op.scratch_at + op.scratch_bytes,
                       m->arena_bytes);
    if ((s = check_attributes(m, i, &op, facts)) != LN_OK) return s;
    return ln_check_quant(m, i, &op, facts);
}

/* ---- lifetimes and order */

static int reads(const ln_op *op, uint32_t tensor)
{
    for (uint32_t k = 0; k < op->n_inputs; k++)
        if (op->inputs[k] == tensor) return 1;
    return 0;
}

/* The operator the tensor calls first writes it, the one it calls last reads it. Outputs live to the end. */
static ln_status check_lifetime(ln_model *m, uint32_t i)
{
    const uint32_t rec = ln_tensor_record(m, i);
    ln_tensor t;
    ln_op op;

    ln_get_tensor(m, i, &t);
    if (t.first >= m->op_count) return ln_fail(m, LN_BAD_LIFETIME, (int32_t)i, rec + 28, t.first, m->op_count);
    if (t.last >= m->op_count) return ln_fail(m, LN_BAD_LIFETIME, (int32_t)i, rec + 30, t.last, m->op_count);
    ln_get_op(m, t.first, &op);
    if (t.is_input ? t.first != 0 : op.output != i)
        return ln_fail(m, LN_BAD_LIFETIME, (int32_t)i, rec + 28, t.first, m->op_count);
    ln_get_op(m, t.last, &op);
    if (t.is_output ? t.last != m->op_count - 1 : !reads(&op, i))
        return ln_fail(m, LN_BAD_LIFETIME, (int32_t)i, rec + 30, t.last, m->op_count);
    return LN_OK;
}

/* The operator's own shape rule; check_op has seen that there is one. On a chip a switch takes less. */
#ifdef LN_TERSE
static ln_status own_check(const ln_call *c)
{
    switch (c->op.id) {
#define LN_OP(id, NAME, name, n_inputs, inplace_mask) \
    case id: return ln_##name##_check(c);
#include "ln_ops.def"
    }
    return LN_UNKNOWN_OP;
}
#else
static ln_status own_check(const ln_call *c)
{
    static ln_status (*const RULES[LN_OP_END])(const ln_call *) = {
#define LN_OP(id, NAME, name, n_inputs, inplace_mask) [id] = ln_##name##_check,
#include "ln_ops.def"
    };
    return RULES[c->op.id](c);
}
#endif

/* With first true for every tensor, each operator writes the tensor that calls it first: there are N operators, and N
 * tensors besides the input, each written by one of its own. */
static ln_status check_order(ln_model *m, uint32_t i)
{
    const uint32_t rec = ln_op_record(m, i);
    ln_call c;

    ln_load_call(m, i, &c);
    for (uint32_t k = 0; k < c.op.n_inputs; k++) {
        if (!c.in[k].is_input && c.in[k].first >= i)
            return ln_fail(m, LN_BAD_ORDER, (int32_t)i, rec + 4 + 2 * k, c.op.inputs[k], c.in[k].first);
        if (c.in[k].last < i)
            return ln_fail(m, LN_BAD_LIFETIME, c.op.inputs[k], ln_tensor_record(m, c.op.inputs[k]) + 30,
                           c.in[k].last, i);
    }
    const ln_status s = own_check(&c);
    if (s == LN_OK) return LN_OK;
    uint32_t at = 12, found = c.op.output; /* LN_BAD_SHAPE */
    if (s == LN_BAD_WEIGHTS) at = 20, found = c.op.weights_bytes;
    if (s == LN_BAD_SCRATCH) at = 28, found = c.op.scratch_bytes;
    if (s == LN_BAD_ALGORITHM) at = 3, found = c.op.algorithm;
    return ln_fail(m, s, (int32_t)i, rec + at, found, s == LN_BAD_WEIGHTS);
}

/* ---- arena */

/* May operator i write its output exactly over tensor b? Only over an input that nothing reads later. */
static int in_place(const ln_op *op, const ln_op_facts *facts, uint32_t i, uint32_t b, const ln_tensor *in)
{
    for (uint32_t k = 0; k < op->n_inputs; k++)
        if (op->inputs[k] == b && !(facts->inplace >> k & 1)) return 0;
    return reads(op, b) && in->last == i;
}

/* Two tensors that live at the same time meet where the younger is written: it is enough to look there. All lie inside the
 * arena, so no sum wraps. */
static ln_status check_arena(ln_model *m, uint32_t i)
{
    ln_op op;
    ln_tensor out, other;

    ln_get_op(m, i, &op);
    ln_get_tensor(m, op.output, &out);
    if (out.is_output) return LN_OK;
    const ln_op_facts *facts = ln_facts(op.id);
    if (facts->view) {
        /* A view that lies over its input writes nothing, so both may live on, and with them what shares the input's place:
         * an operator that later writes over one of them is checked against all the others. */
        ln_get_tensor(m, op.inputs[0], &other);
        if (!other.is_input && !other.is_output && other.arena_at == out.arena_at) return LN_OK;
    }
    for (uint32_t b = 1; b < m->tensor_count; b++) {
        ln_get_tensor(m, b, &other);
        if (b == op.output || other.is_output || other.first > i || other.last < i) continue; /* not alive */
        if (out.arena_at >= other.arena_at + other.bytes || other.arena_at >= out.arena_at + out.bytes) continue;
        if (out.arena_at != other.arena_at || out.bytes != other.bytes || !in_place(&op, facts, i, b, &other))
            return ln_fail(m, LN_OVERLAP, op.output, ln_tensor_record(m, op.output), b, i);
    }
    return LN_OK;
}

ln_status ln_check_records(ln_model *m)
{
    ln_status s = check_tensors(m);

    for (uint32_t i = 0; s == LN_OK && i < m->op_count; i++) s = check_op(m, i);
    for (uint32_t i = 0; s == LN_OK && i < m->tensor_count; i++) s = check_lifetime(m, i);
    for (uint32_t i = 0; s == LN_OK && i < m->op_count; i++) s = check_order(m, i);
    for (uint32_t i = 0; s == LN_OK && i < m->op_count; i++) s = check_arena(m, i);
    return s;
}

#include "ln_cold_end.h"
