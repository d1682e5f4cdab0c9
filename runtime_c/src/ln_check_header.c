/* What the header says besides where things are: shapes, for tools, and preprocessing. Nothing but ln_preprocess reads it,
 * so a build with LN_TERSE looks there, and one that prepares no pictures has none of this. */
#include "ln_cold.h"
#include "ln_internal.h"

/* The header repeats the shapes of the input and the first output, so that a tool can show them at a glance. */
ln_status ln_check_header_shape(ln_model *m, uint32_t i, uint32_t dtype_at, uint32_t dims_at)
{
    const uint8_t *r = m->bin + ln_tensor_record(m, i), *h = m->bin;

    if (h[dtype_at] != r[4]) return ln_fail(m, LN_BAD_HEADER, -1, dtype_at, h[dtype_at], r[4]);
    if (h[dtype_at + 2] != r[5]) return ln_fail(m, LN_BAD_HEADER, -1, dtype_at + 2, h[dtype_at + 2], r[5]);
    for (uint32_t d = 0; d < 16; d += 4)
        if (ln_u32(h + dims_at + d) != ln_u32(r + 8 + d))
            return ln_fail(m, LN_BAD_HEADER, -1, dims_at + d, ln_u32(h + dims_at + d), ln_u32(r + 8 + d));
    return LN_OK;
}

/* An int8 picture's multipliers and offsets, one each for a channel, are such that step 5 fits 32 bits. */
static ln_status check_multipliers(ln_model *m, uint32_t channels)
{
    const int32_t MULTIPLIER_END = (int32_t)1 << 22, OFFSET_END = (int32_t)1 << 30; /* an int may have 16 bits */
    const uint8_t *b = m->bin;

    for (uint32_t at = 100; at < 124; at += 4) {
        const int32_t v = (int32_t)ln_u32(b + at);
        const int used = (at - 100) / 4 % 3 < channels, fits = at < 112 ? v > 0 && v < MULTIPLIER_END
                                                                        : v > -OFFSET_END && v < OFFSET_END;
        if (used ? !fits : v != 0) return ln_fail(m, LN_BAD_PREPROCESS, -1, at, (uint64_t)(int64_t)v, (uint64_t)used);
    }
    return LN_OK;
}

/* The codes are known, the numbers usable, and the input is a frame of that colour. Bytes 28.. of the header are the
 * input's dims, which ln_check_header_shape compares with its record. */
ln_status ln_check_preprocessing(ln_model *m)
{
    static const uint8_t last[4] = {LN_AREA, LN_LETTERBOX, LN_COLOR_BGR, LN_INVERT_AUTO};
    const uint8_t *b = m->bin, color = b[98];

    for (uint32_t i = 0; i < 4; i++)
        if (b[96 + i] > last[i]) return ln_fail(m, LN_BAD_PREPROCESS, -1, 96 + i, b[96 + i], last[i]);
    for (uint32_t at = 100; at < 124 && !(color != LN_COLOR_NONE && ln_i8_type(b[24])); at += 4) {
        const float v = ln_f32(b + at), neutral = at < 112 ? 0.0f : 1.0f;
        if (!(at < 112 ? ln_is_finite(b + at) : ln_is_normal(b + at)) || (color == LN_COLOR_NONE && v != neutral))
            return ln_fail(m, LN_BAD_PREPROCESS, -1, at, ln_u32(b + at), color);
    }
    if (color == LN_COLOR_NONE) {
        for (uint32_t at = 96; at < 100; at++)
            if (b[at]) return ln_fail(m, LN_BAD_PREPROCESS, -1, at, b[at], 0);
        if (b[124]) return ln_fail(m, LN_BAD_PREPROCESS, -1, 124, b[124], 0);
        return LN_OK;
    }
    if (b[26] != 3) return ln_fail(m, LN_BAD_PREPROCESS, -1, 26, b[26], 3);
    for (uint32_t at = 28; at < 36; at += 4)
        if (ln_u32(b + at) > 65535) return ln_fail(m, LN_BAD_PREPROCESS, -1, at, ln_u32(b + at), 65535);
    const uint32_t channels = color == LN_COLOR_GRAY ? 1 : 3;
    if (ln_u32(b + 36) != channels) return ln_fail(m, LN_BAD_PREPROCESS, -1, 36, ln_u32(b + 36), channels);
    return ln_i8_type(b[24]) ? check_multipliers(m, channels) : LN_OK;
}

#include "ln_cold_end.h"
