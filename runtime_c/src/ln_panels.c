#include "ln_panels.h"

#include "ln_lanes.h"
#include "ln_vec8.h"

#ifndef LN_SMALL
#define WEIGHT float
#define TILE(shape) tile_##shape##_f32
#define LOAD4 ln_load4_stored
#define LOAD8 ln_load8_stored
#define SUM8 ln_load8
#define STORE8 ln_store8
#include "ln_tile.h"
#undef WEIGHT
#undef TILE
#undef LOAD4
#undef LOAD8
#undef SUM8
#undef STORE8

#ifdef LN_WITH_F16
#define WEIGHT uint16_t
#define TILE(shape) tile_##shape##_f16
#define LOAD4 ln_load4_f16
#define LOAD8 ln_load8_f16
#define SUM8 ln_load8_paired
#define STORE8 ln_store8_paired
#include "ln_tile.h"
#undef WEIGHT
#undef TILE
#undef LOAD4
#undef LOAD8
#undef SUM8
#undef STORE8
#endif

#endif

LN_COLD uint64_t ln_panels_bytes(uint32_t O, uint64_t K, uint32_t dtype)
{
    const uint32_t width = (O + 3) / 4 * 4; /* of all panels together */
    /* for int8 a bias, a multiplier, and the weights of fours of inputs; else a bias and the weights. Below 2^32, so
     * that the division is one of 32 bits, where a chip has no other */
    const uint64_t rows = dtype == LN_I8 ? (K + 3) / 4 * 4 + 8 : K + 1;
    if (rows > UINT32_MAX || width > UINT32_MAX / (uint32_t)rows) return (uint64_t)1 << 40;
    return (uint64_t)(width * (uint32_t)rows) << (dtype == LN_I8 ? 0 : dtype == LN_F16 ? 1 : 2);
}

void ln_read_weights(const uint8_t *w, uint32_t dtype, size_t index, float *out, size_t n)
{
#ifdef LN_WITH_F16
    if (dtype == LN_F16) {
        const uint16_t *half = ln_halves(w) + index;
        for (size_t i = 0; i < n; i++) out[i] = ln_stored_f16(half + i);
        return;
    }
#endif
    const float *full = ln_floats(w) + index;
    (void)dtype;
    for (size_t i = 0; i < n; i++) out[i] = ln_stored_f32(full + i);
}

#ifndef LN_SMALL

/* sum[m][j] += spans times weights, for the `width` columns of a panel. The first of the weights that meet the spans is
 * the index-th of the block. */
static void add_products(float *sum, uint32_t rows, const ln_spans *list, const uint8_t *w, uint32_t dtype,
                         size_t index, uint32_t width)
{
    for (uint32_t j = 0; j < width;) {
        const uint32_t columns = rows == 1 ? (width == 16 ? 16 : 4) : (width - j >= 8 ? 8 : 4);
#ifdef LN_WITH_F16
        if (dtype == LN_F16) {
            const uint16_t *half = ln_halves(w) + index + j;
            if (columns == 16) tile_1x16_f16(sum, list, half, width);
            else if (columns == 8) tile_4x8_f16(sum + j, list, half, width);
            else if (rows == 1) tile_1x4_f16(sum + j, list, half, width);
            else tile_4x4_f16(sum + j, list, half, width);
        } else
#else
        (void)dtype;
#endif
        {
            const float *full = ln_floats(w) + index + j;
            if (columns == 16) tile_1x16_f32(sum, list, full, width);
            else if (columns == 8) tile_4x8_f32(sum + j, list, full, width);
            else if (rows == 1) tile_1x4_f32(sum + j, list, full, width);
            else tile_4x4_f32(sum + j, list, full, width);
        }
        j += columns;
    }
}

void ln_panels_run(const ln_panels *p, const uint8_t *w, ln_list_spans list_spans, void *source, uint32_t rows,
                   float *const y[LN_ROWS])
{
    ln_spans list;
    const uint32_t first_end = list_spans(source, 0, &list);
    uint32_t listed = 0; /* where `list` begins: usually it holds whole rows and serves all panels */
    size_t panel = 0;    /* index of the panel's first weight */

    for (uint32_t o = 0; o < p->O; o += LN_PANEL) {
        const uint32_t live = p->O - o < LN_PANEL ? p->O - o : LN_PANEL;
        const uint32_t width = (live + 3) / 4 * 4;
        float sum[LN_ROWS * LN_PANEL], bias[LN_PANEL] = {0};
        ln_read_weights(w, p->dtype, panel, bias, width);
        for (uint32_t m = 0; m < LN_ROWS; m++) ln_put_lanes(sum + m * LN_PANEL, bias, LN_PANEL);

        uint32_t end = first_end;
        if (listed != 0) list_spans(source, 0, &list);
        for (listed = 0;;) {
            add_products(sum, rows, &list, w, p->dtype, panel + (size_t)width * (listed + 1), width);
            if (end == p->K) break;
            listed = end;
            end = list_spans(source, listed, &list);
        }

        ln_activate(p->act, p->alpha, sum, rows * LN_PANEL);
        for (uint32_t m = 0; m < rows; m++) ln_put_lanes(y[m] + o, sum + m * LN_PANEL, live);
        panel += (size_t)width * (p->K + 1);
    }
}

#else

/* For chips: one tile, four columns wide, so that code and stack stay small. Sums run over k as above: the same bits. */

/* sum[m][j] += over the spans, over k: x[m][k] w[k][j] for 4 columns; sum has rows of 4, w steps `width` from k to k. */
static void add_products(float *sum, uint32_t rows, const ln_spans *list, const uint8_t *w, uint32_t dtype,
                         size_t index, uint32_t width)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const ln_span *s = &list->span[i];
        for (uint32_t m = 0; m < rows; m++) {
            const float *x = s->x[m];
            size_t at = index;
            ln_vec4 t = ln_load4(sum + 4 * m);
            for (uint32_t k = 0; k < s->n; k++, at += width) {
#ifdef LN_WITH_F16
                if (dtype == LN_F16) {
                    t = ln_mac4(t, x[k], ln_load4_f16(ln_halves(w) + at));
                    continue;
                }
#else
                (void)dtype;
#endif
                t = ln_mac4(t, x[k], ln_load4(ln_floats(w) + at));
            }
            ln_store4(sum + 4 * m, t);
        }
        index += (size_t)s->n * width;
    }
}

void ln_panels_run(const ln_panels *p, const uint8_t *w, ln_list_spans list_spans, void *source, uint32_t rows,
                   float *const y[LN_ROWS])
{
    ln_spans list;
    uint32_t end = 0, listed = UINT32_MAX; /* the list holds values listed to end of each row */
    size_t panel = 0;                      /* index of the panel's first weight */

    for (uint32_t o = 0; o < p->O; o += 4) {
        const uint32_t column = o % LN_PANEL, left = p->O - (o - column);
        const uint32_t width = left < LN_PANEL ? (left + 3) / 4 * 4 : LN_PANEL;
        float sum[LN_LANES] = {0}; /* the first LN_ROWS * 4 count; ln_activate takes all */
        for (uint32_t m = 0; m < LN_ROWS; m++) ln_read_weights(w, p->dtype, panel + column, sum + 4 * m, 4);

        for (uint32_t k = 0; k != p->K; k = end) {
            if (listed != k) end = list_spans(source, listed = k, &list);
            add_products(sum, rows, &list, w, p->dtype, panel + column + (size_t)width * (k + 1), width);
        }
        ln_activate(p->act, p->alpha, sum, LN_LANES);
        for (uint32_t m = 0; m < rows; m++)
            for (uint32_t j = 0; j < 4 && o + j < p->O; j++) y[m][o + j] = sum[4 * m + j];
        if (column + 4 == width) panel += (size_t)width * (p->K + 1);
    }
}

#endif
