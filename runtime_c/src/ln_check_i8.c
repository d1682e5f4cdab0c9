/* What int8 asks of tensor and operator records: part of ln_check_records, which has them in its passes.
 *
 * That an int8 operator's arithmetic gives what training wanted is the writer's concern; here is only what keeps every
 * machine at the same result: shifts that exist, products that fit, no division by zero. */
#include "ln_cold.h"
#include "ln_int8.h"

#ifdef LN_WITH_I8
enum {
    MOST_SHIFT = 24,
    MOST_FINE = 7, /* of a requantisation */
    BUILT = LN_INT8_BOUNDS /* of quantize, and what else the operators of this build take */
#define LN_OP_I8(id, NAME, name, takes) | (takes)
#include "ln_ops_i8.def"
};
static const int32_t MOST_FACTOR = (int32_t)1 << 21; /* an int may have 16 bits */
#endif

ln_status ln_check_scale(ln_model *m, uint32_t i)
{
    const uint32_t rec = ln_tensor_record(m, i);
    const uint8_t *r = m->bin + rec;

    if (ln_i8_type(r[4])) {
        if (!ln_is_normal(r + 24))
            return ln_fail(m, LN_BAD_SCALE, (int32_t)i, rec + 24, ln_word_at(r + 24), 0);
        return LN_OK;
    }
    if (r[7] != 0) return ln_fail(m, LN_BAD_SCALE, (int32_t)i, rec + 7, r[7], 0);
    if (ln_word_at(r + 24) != 0x3F800000u) /* 1.0f */
        return ln_fail(m, LN_BAD_SCALE, (int32_t)i, rec + 24, ln_word_at(r + 24), 0x3F800000u);
    return LN_OK;
}

#ifdef LN_WITH_I8

static uint32_t type_of(const ln_model *m, uint32_t tensor)
{
    return m->bin[ln_tensor_record(m, tensor) + 4];
}

/* An operator that is built and has an int8 form has that built, too. */
ln_status ln_check_types(ln_model *m, uint32_t i, const ln_op *op, const ln_op_facts *facts)
{
    const uint32_t rec = ln_op_record(m, i);
#ifdef LN_WITH_F32
    const uint32_t y = type_of(m, op->output);
    uint32_t x = y;

    if (op->id == LN_OP_QUANTIZE || op->id == LN_OP_DEQUANTIZE) {
        const uint32_t want = op->id == LN_OP_QUANTIZE ? LN_I8 : LN_F32;
        if (y != want) return ln_fail(m, LN_BAD_DTYPE, (int32_t)i, rec + 12, y, want);
        x = LN_F32 + LN_I8 - want;
    }
    for (uint32_t k = 0; k < op->n_inputs; k++)
        if (type_of(m, op->inputs[k]) != x)
            return ln_fail(m, LN_BAD_DTYPE, (int32_t)i, rec + 4 + 2 * k, type_of(m, op->inputs[k]), x);
#else
    const uint32_t y = LN_I8; /* as all are */
    (void)op;
#endif
    if (y == LN_I8 && !facts->int8) return ln_fail(m, LN_BAD_DTYPE, (int32_t)i, rec + 12, y, LN_F32);
    return LN_OK;
}

static ln_status bad(ln_model *m, uint32_t i, uint32_t field, int32_t found, int32_t expected)
{
    return ln_fail(m, LN_BAD_QUANT, (int32_t)i, ln_op_record(m, i) + field, (uint64_t)(int64_t)found,
                   (uint64_t)(int64_t)expected);
}

/* y has this scale and zero point: those of x, or for softmax 1/256 and -128. */
static ln_status check_same(ln_model *m, uint32_t y, uint32_t scale, uint8_t zero_point)
{
    const uint32_t rec = ln_tensor_record(m, y);
    const uint8_t *r = m->bin + rec;

    if (ln_word_at(r + 24) != scale) return ln_fail(m, LN_BAD_SCALE, (int32_t)y, rec + 24, ln_word_at(r + 24), scale);
    if (r[7] != zero_point) return ln_fail(m, LN_BAD_SCALE, (int32_t)y, rec + 7, r[7], zero_point);
    return LN_OK;
}

static ln_status check_factor(ln_model *m, uint32_t i, uint32_t field, int32_t M, int rescales, int requantises)
{
    if (requantises) return M < 0 ? bad(m, i, field, M, 0) : LN_OK;
    if (!rescales) return M != 0 ? bad(m, i, field, M, 0) : LN_OK;
    return M < -MOST_FACTOR || M > MOST_FACTOR ? bad(m, i, field, M, MOST_FACTOR) : LN_OK;
}

ln_status ln_check_quant(ln_model *m, uint32_t i, const ln_op *op, const ln_op_facts *facts)
{
    const ln_quant q = ln_quant_of(op->attrs);
    const uint8_t *x = m->bin + ln_tensor_record(m, op->inputs[0]);
    const int32_t shift = (int32_t)q.shift, takes = facts->int8 & BUILT;
    int32_t most;
    ln_status s;

    if (!ln_i8_type(type_of(m, op->output))) return LN_OK; /* its bytes have been found to be 0 */
    if (takes & LN_INT8_BOUNDS) {
        if (q.lo > q.hi) return bad(m, i, 52, q.lo, q.hi);
    } else {
        if (q.lo != -128) return bad(m, i, 52, q.lo, -128);
        if (q.hi != 127) return bad(m, i, 53, q.hi, 127);
    }
    most = takes & LN_INT8_SHIFT ? MOST_SHIFT : takes & LN_INT8_FINE ? MOST_FINE : 0;
    if (shift > most || (shift == 0 && takes & LN_INT8_SHIFT)) return bad(m, i, 54, shift, most);
    if (q.border != 0 && !(takes & LN_INT8_BORDER)) return bad(m, i, 55, q.border, 0);
    s = check_factor(m, i, 56, q.m1, takes & LN_INT8_M1, takes & LN_INT8_REQUANT);
    if (s == LN_OK) s = check_factor(m, i, 60, q.m2, takes & LN_INT8_M2, 0);
    if (s != LN_OK) return s;
    if (takes & LN_INT8_SAME) return check_same(m, op->output, ln_word_at(x + 24), x[7]);
    if (op->id != LN_OP_SOFTMAX) return LN_OK;
    if (op->weights_bytes >= 2 && ln_u16(m->bin + op->weights_at) == 0) return bad(m, i, 16, 0, 1);
    return check_same(m, op->output, 0x3B800000u, 128); /* 2^-8, -128 */
}

#endif

#include "ln_cold_end.h"
