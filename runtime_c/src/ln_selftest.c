/* The golden section: inputs with what the exporter's run of this very file gave, operator by operator, so that a
 * device can show that it computes the same. Its layout and the rule of comparison: FORMAT.md, "Golden section". */
#include "ln_cold.h"
#include "ln_int8.h"

enum { BLOCK = 256 }; /* values summed before they join the total, so that long sums keep their digits */

void ln_golden_shape(const ln_model *m, ln_golden *g)
{
    const uint8_t *b = m->bin + m->golden_at;
    ln_tensor in;

    ln_get_tensor(m, 0, &in);
    g->fixed = 16 + 4 * (uint64_t)m->op_count;
    g->made = b[12] == 2;
    g->frames = b[12] != 0 && m->bin[98] != LN_COLOR_NONE;
    g->bytes = g->frames || ln_i8_type(in.dtype);
    g->x = in.elements;
    g->x_bytes = g->made ? 4 : g->bytes ? (g->x + 3) & ~(uint64_t)3 : 4 * g->x;
    g->y_bytes = ((uint64_t)ln_output_bytes(m) + 3) & ~(uint64_t)3;
    g->each = g->x_bytes + g->y_bytes + 8 * (uint64_t)m->op_count; /* each term below 2^33: nothing wraps */
    g->inputs = ln_u32(b + 4);
}

static ln_grade next_grade(ln_grade before, uint32_t dtype)
{
    if (ln_i8_type(dtype)) return before == LN_EXACT ? LN_EXACT : LN_LOOSE;
    return before == LN_EXACT ? LN_CLOSE : before;
}

ln_grade ln_grade_of(const ln_model *m, uint32_t op_index)
{
    ln_grade grade = LN_EXACT;

    for (uint32_t i = 0; i <= op_index; i++) {
        ln_op op;
        ln_tensor y;
        ln_get_op(m, i, &op);
        ln_get_tensor(m, op.output, &y);
        grade = next_grade(grade, y.dtype);
    }
    return grade;
}

static ln_status bad(ln_model *m, uint64_t at, uint64_t found, uint64_t expected)
{
    return ln_fail(m, LN_BAD_GOLDEN, -1, m->golden_at + (uint32_t)at, found, expected);
}

static ln_status check_values(ln_model *m, uint64_t at, uint64_t n, int bytes) /* n of them; `bytes`: fill behind them */
{
    const uint8_t *b = m->bin + m->golden_at;

    if (!bytes) {
        for (uint64_t i = at; i < at + 4 * n; i += 4)
            if (!ln_is_finite(b + i)) return bad(m, i, ln_u32(b + i), 0);
        return LN_OK;
    }
    for (uint64_t i = at + n; i < at + ((n + 3) & ~(uint64_t)3); i++)
        if (b[i]) return bad(m, i, b[i], 0);
    return LN_OK;
}

/* The golden input at `at`: values finite, fill 0, and 0 behind the checksums of operators that are exact. */
static ln_status check_input(ln_model *m, const ln_golden *g, uint64_t at)
{
    ln_status s = g->made ? LN_OK : check_values(m, at, g->x, g->bytes); /* any seed will do */
    ln_grade grade = LN_EXACT;
    ln_tensor t;

    at += g->x_bytes;
    for (uint32_t i = 1; s == LN_OK && i < m->tensor_count; i++) {
        ln_get_tensor(m, i, &t);
        if (!t.is_output) continue;
        s = check_values(m, at, t.elements, ln_i8_type(t.dtype));
        at += ((uint64_t)t.bytes + 3) & ~(uint64_t)3;
    }
    for (uint32_t i = 0; s == LN_OK && i < m->op_count; i++, at += 8) {
        const uint8_t *b = m->bin + m->golden_at + at;
        ln_op op;
        ln_get_op(m, i, &op);
        ln_get_tensor(m, op.output, &t);
        grade = next_grade(grade, t.dtype);
        if (grade != LN_EXACT) s = check_values(m, at, 2, 0);
        else if (ln_u32(b + 4)) s = bad(m, at + 4, ln_u32(b + 4), 0);
    }
    return s;
}

ln_status ln_check_golden(ln_model *m)
{
    const uint64_t least = 16 + 4 * (uint64_t)m->op_count;
    ln_golden g;

    if (m->golden_bytes == 0) return LN_OK;
    if (m->golden_bytes < least) return ln_fail(m, LN_BAD_GOLDEN, -1, 84, m->golden_bytes, least);

    const uint8_t *b = m->bin + m->golden_at;
    if (ln_u32(b) != 1) return bad(m, 0, ln_u32(b), 1);
    if (ln_u32(b + 8) != m->op_count) return bad(m, 8, ln_u32(b + 8), m->op_count);
    if (b[12] == 1 ? m->bin[98] == LN_COLOR_NONE : b[12] == 2 ? !ln_i8_type(m->bin[24]) : b[12] != 0)
        return bad(m, 12, b[12], 0);
    for (uint32_t i = 13; i < 16; i++)
        if (b[i]) return bad(m, i, b[i], 0);

    ln_golden_shape(m, &g);
    const uint64_t room = m->golden_bytes - g.fixed;
    if (g.inputs < 1 || room % g.each || room / g.each != g.inputs) return bad(m, 4, g.inputs, room / g.each);
    for (uint64_t at = g.fixed; at < m->golden_bytes; at += g.each) {
        const ln_status s = check_input(m, &g, at);
        if (s != LN_OK) return s;
    }
    return LN_OK;
}

static float value_of(const void *y, const ln_tensor *t, uint32_t i) /* of int8, in steps */
{
    return ln_i8_type(t->dtype) ? (float)(((const int8_t *)y)[i] - t->zero_point) : ((const float *)y)[i];
}

/* The mean of |y|, and the mean of y with signs that depend on the position, so that swapped values show. */
static void sums(const void *y, const ln_tensor *t, float *mean_abs, float *mean_signed)
{
    const uint32_t n = t->elements;
    float a = 0.0f, s = 0.0f, lost_a = 0.0f, lost_s = 0.0f; /* Kahan: what rounding took from the totals */

    for (uint32_t start = 0; start < n; start += BLOCK) {
        const uint32_t end = n - start < BLOCK ? n : start + BLOCK;
        float block_a = -lost_a, block_s = -lost_s;
        for (uint32_t i = start; i < end; i++) {
            const float v = value_of(y, t, i);
            block_a += v < 0.0f ? -v : v;
            block_s += i * 2654435761u < 0x80000000u ? v : -v;
        }
        const float next_a = a + block_a, next_s = s + block_s;
        lost_a = (next_a - a) - block_a;
        lost_s = (next_s - s) - block_s;
        a = next_a;
        s = next_s;
    }
    *mean_abs = a / (float)n;
    *mean_signed = s / (float)n;
}

static uint32_t bits_of(float value)
{
    union {
        float value;
        uint32_t bits;
    } v;

    v.value = value;
    return v.bits;
}

static int differs(ln_model *m, ln_status status, uint32_t op, uint64_t at, uint32_t found, uint32_t expected)
{
    m->status = status;
    m->record = (int32_t)op;
    m->at = m->golden_at + (uint32_t)at;
    m->found = found;
    m->expected = expected;
    return 0;
}

/* Is got within `share` scale + least of the float32 stored at b[at]? Written as "within", so that NaN is not. If not,
 * m says so. */
static int same(ln_model *m, uint32_t op, uint64_t at, float got, float scale, float share, float least)
{
    const uint8_t *stored = m->bin + m->golden_at + at;
    const float d = got - ln_f32(stored), tolerance = share * scale + least;

    if (d <= tolerance && -d <= tolerance) return 1;
    return differs(m, (bits_of(got) & 0x7F800000u) == 0x7F800000u ? LN_NOT_FINITE : LN_SELFTEST_FAILED, op, at,
                   bits_of(got), ln_u32(stored));
}

typedef struct watch {
    ln_model *m;
    uint64_t at;    /* of the operator values of this golden input, in the golden section */
    ln_grade grade; /* of the operator before */
} watch;

static int after_op(void *user, uint32_t i, const ln_op *op, const ln_tensor *out, const void *y)
{
    watch *w = user;
    const uint64_t at = w->at + 8 * (uint64_t)i;
    const uint8_t *stored = w->m->bin + w->m->golden_at + at;
    float mean_abs, mean_signed;

    (void)op;
    w->grade = next_grade(w->grade, out->dtype);
    if (w->grade == LN_EXACT) {
        const uint32_t crc = ln_crc32(0, y, out->bytes);
        return crc == ln_u32(stored) ? 0 : !differs(w->m, LN_SELFTEST_FAILED, i, at, crc, ln_u32(stored));
    }
    const float scale = ln_f32(stored), share = w->grade == LN_CLOSE ? 1e-3f : 2e-2f;
    const float least = ln_i8_type(out->dtype) ? 2e-2f : 1e-6f;
    sums(y, out, &mean_abs, &mean_signed);
    return !same(w->m, i, at, mean_abs, scale, share, least) || !same(w->m, i, at + 4, mean_signed, scale, share, least);
}

/* Of the outputs stored at `at`, the largest |value| of floats. */
static float largest_float(const ln_model *m, uint64_t at)
{
    float largest = 0.0f;
    ln_tensor t;

    for (uint32_t i = 1; i < m->tensor_count; i++) {
        ln_get_tensor(m, i, &t);
        if (!t.is_output) continue;
        for (uint32_t k = 0; t.dtype != LN_I8 && k < t.elements; k++) {
            const float want = ln_f32(m->bin + m->golden_at + at + 4 * (uint64_t)k), size = want < 0.0f ? -want : want;
            if (size > largest) largest = size;
        }
        at += ((uint64_t)t.bytes + 3) & ~(uint64_t)3;
    }
    return largest;
}

/* One output of int8: the same bytes, or behind floats a few steps apart. */
static int same_steps(ln_model *m, const ln_tensor *t, uint64_t at, const int8_t *y, ln_grade grade)
{
    const uint8_t *want = m->bin + m->golden_at + at;
    int32_t largest = 0;

    for (uint32_t k = 0; k < t->elements; k++) {
        const int32_t steps = ln_i8_of(want[k]) - t->zero_point, size = steps < 0 ? -steps : steps;
        if (size > largest) largest = size;
    }
    const int32_t most = grade == LN_EXACT ? 0 : largest / 20 + 2;
    for (uint32_t k = 0; k < t->elements; k++) {
        const int32_t d = y[k] - ln_i8_of(want[k]);
        if (d > most || -d > most)
            return differs(m, LN_SELFTEST_FAILED, t->first, at + k, (uint32_t)(int32_t)y[k],
                           (uint32_t)ln_i8_of(want[k]));
    }
    return 1;
}

static int same_outputs(ln_model *m, uint64_t at, const uint8_t *out)
{
    const float largest = largest_float(m, at);
    ln_tensor t;

    for (uint32_t i = 1; i < m->tensor_count; i++) {
        ln_get_tensor(m, i, &t);
        if (!t.is_output) continue;
        const ln_grade grade = ln_grade_of(m, t.first);
        const uint64_t room = ((uint64_t)t.bytes + 3) & ~(uint64_t)3;
        if (ln_i8_type(t.dtype)) {
            if (!same_steps(m, &t, at, (const int8_t *)out, grade)) return 0;
        } else {
            const float share = grade == LN_CLOSE ? 1e-3f : 5e-2f, *y = (const float *)(const void *)out;
            for (uint32_t k = 0; k < t.elements; k++)
                if (!same(m, t.first, at + 4 * (uint64_t)k, y[k], largest, share, 1e-6f)) return 0;
        }
        at += room;
        out += room;
    }
    return 1;
}

static ln_status check_weights(ln_model *m)
{
    for (uint32_t i = 0; i < m->op_count; i++) {
        ln_op op;
        ln_get_op(m, i, &op);
        const uint32_t at = m->golden_at + 16 + 4 * i, want = ln_u32(m->bin + at);
        const uint32_t got = op.weights_bytes ? ln_crc32(0, m->bin + op.weights_at, op.weights_bytes) : 0;
        if (got == want) continue;
        m->status = LN_SELFTEST_FAILED;
        m->record = (int32_t)i;
        m->at = at;
        m->found = got;
        m->expected = want;
        return m->status;
    }
    return LN_OK;
}

#ifdef LN_WITH_I8
static uint32_t wave(uint32_t phase) /* up to 255 and down again, 2^32 a period */
{
    return (phase < 0x80000000u ? phase : ~phase) >> 23;
}

/* The golden input that a seed stands for: two waves along the memory, whose steps are the first two numbers drawn, and
 * noise, which are the others. */
static void make_input(const ln_model *m, const ln_golden *g, uint32_t seed, uint8_t *x)
{
    const uint8_t less = g->frames ? 0 : 0x80;
    uint32_t a = 0, b = 0, at_a = 0, at_b = 0;

    for (uint64_t i = 0; i < g->x + 2; i++) {
        uint32_t k = seed++;
        k = (k ^ k >> 16) * 0x7FEB352Du;
        k = (k ^ k >> 15) * 0x846CA68Bu;
        k ^= k >> 16;
        if (i < 2) {
            a = b;
            b = k;
            continue;
        }
        x[i - 2] = (uint8_t)((2 * wave(at_a) + wave(at_b) + (k >> 24)) / 4 ^ less);
        at_a += a >> 4;
        at_b += b;
    }
    if (g->frames) ln_frame_to_input(m, x, x);
}
#endif

ln_status ln_selftest(ln_model *m, void *arena, size_t arena_bytes, void *x, void *out)
{
    ln_golden g;

    if (m == NULL || x == NULL || out == NULL) return LN_NULL_POINTER;
    if (m->len == 0) return m->status != LN_OK ? m->status : LN_NULL_POINTER;
    m->status = LN_OK;
    m->record = -1;
    if (m->golden_bytes == 0) return m->status = LN_NO_GOLDEN;
#ifdef LN_TERSE
    if ((m->status = ln_check_golden(m)) != LN_OK) return m->status;
#endif
    if (check_weights(m) != LN_OK) return m->status;

    ln_golden_shape(m, &g);
    const uint8_t *b = m->bin + m->golden_at;
    for (uint64_t at = g.fixed; at < m->golden_bytes; at += g.each) {
        const uint64_t y_at = at + g.x_bytes;
        watch w = {m, y_at + g.y_bytes, LN_EXACT};
#ifdef LN_WITH_I8
        if (g.made) make_input(m, &g, ln_u32(b + at), x);
        else
#endif
        if (g.frames) ln_frame_to_input(m, b + at, x);
        else if (g.bytes)
            for (uint64_t i = 0; i < g.x; i++) ((uint8_t *)x)[i] = b[at + i];
        else
            for (uint64_t i = 0; i < g.x; i++) ((float *)x)[i] = ln_f32(b + at + 4 * i);

        const ln_status s = ln_run_each(m, arena, arena_bytes, x, out, after_op, &w);
        if (m->status != LN_OK) return m->status; /* after_op has found a difference */
        if (s != LN_OK) return m->status = s;
        if (!same_outputs(m, y_at, out)) return m->status;
    }
    return LN_OK;
}

#include "ln_cold_end.h"
