/* Where FORMAT.md, section 12, promises that every way to calculate gives the same bytes: all operators are on whole
 * numbers, and the weights are such that no sum wraps, as a writer sees to. */
#ifndef EXACT_H
#define EXACT_H

#include "ln_int8.h"
#include "ln_ops.h"

/* The multipliers and biases of one panel of `width` channels, and the sums of its weights: `most` is the largest |input|
 * that meets a weight. */
static int panel_holds(const uint8_t *b, uint32_t width, uint32_t K, int depthwise, int64_t most)
{
    for (uint32_t o = 0; o < width; o++) {
        const int64_t B = ln_i32(b + 4 * o);
        int64_t sum = 0;
        for (uint32_t k = 0; k < K; k++) {
            const uint32_t at = depthwise ? k * width + o : k / 4 * 4 * width + 4 * o + k % 4;
            const int32_t w = ln_i8_of(b[8 * width + at]);
            sum += w < 0 ? -w : w;
        }
        if ((B < 0 ? -B : B) + most * sum >= (int64_t)1 << 30 || ln_i32(b + 4 * width + 4 * o) < 0) return 0;
    }
    return 1;
}

static int sums_hold(const ln_model *m, const ln_op *op, const ln_tensor *y)
{
    ln_tensor x;

    ln_get_tensor(m, op->inputs[0], &x);
    const int embeds = op->id == LN_OP_EMBED_PROJECTION;
    const uint32_t groups = op->id == LN_OP_CONV2D ? ln_u16(op->attrs + 10) : 1;
    const uint32_t O = embeds ? ln_u32(op->attrs) : y->dims[y->rank - 1] / groups;
    const uint32_t all = O / 16 * 16 + (O % 16 + 3) / 4 * 4, K = op->weights_bytes / groups / all - 8;
    const int64_t most = embeds ? 128 * (int64_t)x.dims[x.rank - 1] : 128;
    const uint8_t *b = m->bin + op->weights_at;

    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t left = all; left;) {
            const uint32_t width = left < 16 ? left : 16;
            if (!panel_holds(b, width, K, op->id == LN_OP_DEPTHWISE_CONV2D, most)) return 0;
            b += width * (8 + K);
            left -= width;
        }
    return 1;
}

/* Of batchnorm M, then B, of prelu M alone. */
static int vectors_hold(const ln_model *m, const ln_op *op)
{
    const uint32_t n = op->weights_bytes / 4, C = op->id == LN_OP_BATCHNORM ? n / 2 : n;

    for (uint32_t i = 0; i < n; i++) {
        const int64_t v = ln_i32(m->bin + op->weights_at + 4 * i), most = i < C ? 1 << 21 : (1 << 30) - 1;
        if (v < -most || v > most) return 0;
    }
    return 1;
}

static int is_exact(const ln_model *m)
{
    for (uint32_t i = 0; i < m->op_count; i++) {
        ln_op op;
        ln_tensor y;
        ln_get_op(m, i, &op);
        ln_get_tensor(m, op.output, &y);
        if (y.dtype != LN_I8) return 0;
        switch (op.id) {
        case LN_OP_LINEAR: case LN_OP_CONV2D: case LN_OP_DEPTHWISE_CONV2D: case LN_OP_EMBED_PROJECTION:
            if (!sums_hold(m, &op, &y)) return 0;
            break;
        case LN_OP_BATCHNORM: case LN_OP_PRELU:
            if (!vectors_hold(m, &op)) return 0;
        }
    }
    return 1;
}

#endif
