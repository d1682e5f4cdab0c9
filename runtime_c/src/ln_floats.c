/* For callers that have floats, or want them, whatever the model is made of. A chip need not link this. */
#include "ln_cold.h"
#include "ln_int8.h"

void ln_get_preprocessing(const ln_model *m, ln_preprocessing *p)
{
    ln_tensor x;

    ln_get_rules(m->bin, p);
    ln_get_tensor(m, 0, &x);
    if (x.dtype != LN_I8 || p->color == LN_COLOR_NONE) return;
    for (uint32_t c = 0; c < 3; c++) {
        const float P = (float)ln_i32(m->bin + 100 + 4 * c), Q = (float)ln_i32(m->bin + 112 + 4 * c);
        const int used = c == 0 || p->color != LN_COLOR_GRAY;
        p->mean[c] = used ? ((float)(65536 * x.zero_point + 32768) - Q) / P : 0.0f;
        p->std[c] = used ? 65536.0f / (P * x.scale) : 1.0f;
    }
}

ln_status ln_quantize_input(const ln_model *m, const float *values, void *in)
{
    const ln_status usable = ln_check_usable(m, values, in);
    ln_tensor t;

    if (usable != LN_OK) return usable;
    ln_get_tensor(m, 0, &t);
    if (ln_i8_type(t.dtype) && m->fast && m->fast->enter)
        return m->fast->enter(values, in, t.elements, 1.0f / t.scale, t.zero_point) ? LN_OK : LN_INPUT_NOT_FINITE;
#ifdef LN_WITH_F32
    if (!ln_all_finite(values, t.elements)) return LN_INPUT_NOT_FINITE;
#else
    for (uint32_t i = 0; i < t.elements; i++)
        if (!ln_is_number(values[i])) return LN_INPUT_NOT_FINITE;
#endif
    if (ln_i8_type(t.dtype)) {
        const ln_quant all = {-128, 127, 0, 0, 0, 0};
        const float inverse = 1.0f / t.scale;
        int8_t *q = in;
        for (uint32_t i = 0; i < t.elements; i++) q[i] = ln_held(&all, t.zero_point, ln_rounded(values[i] * inverse));
    } else {
        float *x = in;
        for (uint32_t i = 0; i < t.elements; i++) x[i] = values[i];
    }
    return LN_OK;
}

ln_status ln_dequantize_output(const ln_model *m, const void *out, float *values)
{
    const ln_status usable = ln_check_usable(m, out, values);
    const uint8_t *from = out;

    if (usable != LN_OK) return usable;
    for (uint32_t i = 1; i < m->tensor_count; i++) {
        ln_tensor t;
        ln_get_tensor(m, i, &t);
        if (!t.is_output) continue;
        for (uint32_t k = 0; k < t.elements; k++)
            values[k] = ln_i8_type(t.dtype) ? t.scale * (float)(ln_i8_of(from[k]) - t.zero_point)
                                            : ln_f32(from + 4 * (size_t)k);
        values += t.elements;
        from += ((size_t)t.bytes + 3) & ~(size_t)3;
    }
    return LN_OK;
}

#include "ln_cold_end.h"
