/* The golden section: inputs with what the exporter's run of this very file gave, operator by operator, so that a
 * device can show that it computes the same. Its layout and the rule of comparison: FORMAT.md, "Golden section". */
#include "ln_cold.h"
#include "ln_internal.h"

enum { BLOCK = 256 }; /* values summed before they join the total, so that long sums keep their digits */

void ln_golden_shape(const ln_model *m, ln_golden *g)
{
    const uint8_t *b = m->bin + m->golden_at;

    g->fixed = 16 + 4 * (uint64_t)m->op_count;
    g->frames = b[12] == 1;
    g->x = ln_input_elements(m);
    g->y = ln_output_elements(m);
    g->x_bytes = g->frames ? (g->x + 3) & ~(uint64_t)3 : 4 * g->x;
    g->each = g->x_bytes + 4 * g->y + 8 * (uint64_t)m->op_count; /* each term below 2^32: nothing wraps */
    g->inputs = ln_u32(b + 4);
}

static ln_status bad(ln_model *m, uint64_t at, uint64_t found, uint64_t expected)
{
    return ln_fail(m, LN_BAD_GOLDEN, -1, m->golden_at + (uint32_t)at, found, expected);
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
    if (b[12] > 1 || (b[12] == 1 && m->bin[98] == LN_COLOR_NONE)) return bad(m, 12, b[12], 0);
    for (uint32_t i = 13; i < 16; i++)
        if (b[i]) return bad(m, i, b[i], 0);

    ln_golden_shape(m, &g);
    const uint64_t room = m->golden_bytes - g.fixed;
    if (g.inputs < 1 || room % g.each || room / g.each != g.inputs) return bad(m, 4, g.inputs, room / g.each);
    for (uint64_t at = g.fixed; at < m->golden_bytes; at += g.each) {
        uint64_t i = at;
        if (g.frames) {
            for (i += g.x; i < at + g.x_bytes; i++)
                if (b[i]) return bad(m, i, b[i], 0);
        }
        for (; i < at + g.each; i += 4)
            if (!ln_is_finite(b + i)) return bad(m, i, ln_u32(b + i), 0);
    }
    return LN_OK;
}

/* The mean of |y|, and the mean of y with signs that depend on the position, so that swapped values show. */
static void sums(const float *y, uint32_t n, float *mean_abs, float *mean_signed)
{
    float a = 0.0f, s = 0.0f, lost_a = 0.0f, lost_s = 0.0f; /* Kahan: what rounding took from the totals */

    for (uint32_t start = 0; start < n; start += BLOCK) {
        const uint32_t end = n - start < BLOCK ? n : start + BLOCK;
        float block_a = -lost_a, block_s = -lost_s;
        for (uint32_t i = start; i < end; i++) {
            block_a += y[i] < 0.0f ? -y[i] : y[i];
            block_s += i * 2654435761u < 0x80000000u ? y[i] : -y[i];
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

/* Is got within 1e-3 scale + 1e-6 of the float32 stored at b[at]? Written as "within", so that NaN is not. If not,
 * m says so. */
static int same(ln_model *m, uint32_t op, uint64_t at, float got, float scale)
{
    const uint8_t *stored = m->bin + m->golden_at + at;
    const float want = ln_f32(stored), d = got - want;
    const float tolerance = 1e-3f * scale + 1e-6f;

    if (d <= tolerance && -d <= tolerance) return 1;
    m->status = (bits_of(got) & 0x7F800000u) == 0x7F800000u ? LN_NOT_FINITE : LN_SELFTEST_FAILED;
    m->record = (int32_t)op;
    m->at = m->golden_at + (uint32_t)at;
    m->found = bits_of(got);
    m->expected = ln_u32(stored);
    return 0;
}

typedef struct watch {
    ln_model *m;
    uint64_t at; /* of the operator values of this golden input, in the golden section */
} watch;

static int after_op(void *user, uint32_t i, const ln_op *op, const ln_tensor *out, const float *y)
{
    watch *w = user;
    const uint64_t at = w->at + 8 * (uint64_t)i;
    const float scale = ln_f32(w->m->bin + w->m->golden_at + at);
    float mean_abs, mean_signed;

    (void)op;
    sums(y, out->elements, &mean_abs, &mean_signed);
    return !same(w->m, i, at, mean_abs, scale) || !same(w->m, i, at + 4, mean_signed, scale);
}

/* The operator that writes output value v. */
static int32_t writer_of(const ln_model *m, uint64_t v)
{
    ln_tensor t;

    for (uint32_t i = 1; i < m->tensor_count; i++) {
        ln_get_tensor(m, i, &t);
        if (!t.is_output) continue;
        if (v < t.elements) return t.first;
        v -= t.elements;
    }
    return 0;
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

ln_status ln_selftest(ln_model *m, void *arena, size_t arena_bytes, float *x, float *out)
{
    ln_preprocessing p;
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

    ln_get_preprocessing(m, &p);
    ln_golden_shape(m, &g);
    const uint8_t *b = m->bin + m->golden_at;
    for (uint64_t at = g.fixed; at < m->golden_bytes; at += g.each) {
        const uint64_t y_at = at + g.x_bytes;
        watch w = {m, y_at + 4 * g.y};
        if (g.frames) ln_normalize(&p, b + at, (uint32_t)g.x, x);
        else
            for (uint64_t i = 0; i < g.x; i++) x[i] = ln_f32(b + at + 4 * i);

        const ln_status s = ln_run_each(m, arena, arena_bytes, x, out, after_op, &w);
        if (m->status != LN_OK) return m->status; /* after_op has found a difference */
        if (s != LN_OK) return m->status = s;

        float largest = 0.0f;
        for (uint64_t i = 0; i < g.y; i++) {
            const float want = ln_f32(b + y_at + 4 * i), size = want < 0.0f ? -want : want;
            if (size > largest) largest = size;
        }
        for (uint64_t i = 0; i < g.y; i++)
            if (!same(m, 0, y_at + 4 * i, out[i], largest)) {
                m->record = writer_of(m, i);
                return m->status;
            }
    }
    return LN_OK;
}
