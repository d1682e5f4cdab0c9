#include "ln_panels.h"

#include "ln_lanes.h"
#include "ln_vec8.h"

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

uint64_t ln_panels_bytes(uint64_t O, uint64_t K, uint32_t dtype)
{
    const uint64_t width = (O + 3) / 4 * 4; /* of all panels together */
    if ((dtype != LN_F32 && dtype != LN_F16) || K >= UINT32_MAX || width > UINT32_MAX / (K + 1))
        return (uint64_t)1 << 40;
    return width * (K + 1) * (dtype == LN_F16 ? 2 : 4);
}

void ln_read_weights(const uint8_t *w, uint32_t dtype, size_t index, float *out, size_t n)
{
    if (dtype == LN_F16) {
        const uint16_t *half = ln_halves(w) + index;
        for (size_t i = 0; i < n; i++) out[i] = ln_stored_f16(half + i);
    } else {
        const float *full = ln_floats(w) + index;
        for (size_t i = 0; i < n; i++) out[i] = ln_stored_f32(full + i);
    }
}

/* sum[m][j] += spans times weights, for the `width` columns of a panel. The first of the weights that meet the spans is
 * the index-th of the block. */
static void add_products(float *sum, uint32_t rows, const ln_spans *list, const uint8_t *w, uint32_t dtype,
                         size_t index, uint32_t width)
{
    for (uint32_t j = 0; j < width;) {
        const uint32_t columns = rows == 1 ? (width == 16 ? 16 : 4) : (width - j >= 8 ? 8 : 4);
        if (dtype == LN_F16) {
            const uint16_t *half = ln_halves(w) + index + j;
            if (columns == 16) tile_1x16_f16(sum, list, half, width);
            else if (columns == 8) tile_4x8_f16(sum + j, list, half, width);
            else if (rows == 1) tile_1x4_f16(sum + j, list, half, width);
            else tile_4x4_f16(sum + j, list, half, width);
        } else {
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
