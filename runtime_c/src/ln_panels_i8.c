#include "ln_panels_i8.h"

#ifdef LN_WITH_I8

#include "ln_tile_i8.h"

void ln_panels_i8_run(const ln_panels_i8 *p, const uint8_t *w, ln_fetch fetch, void *source, uint32_t rows,
                      int8_t *const y[LN_ROWS])
{
    const uint32_t K = (p->K + QUAD - 1) / QUAD * QUAD;
    ln_piece piece;

    for (uint32_t o = 0; o < p->O; o += LN_PANEL) {
        const uint32_t live = p->O - o < LN_PANEL ? p->O - o : LN_PANEL, width = (live + 3) / 4 * 4;
        const int8_t *products = (const int8_t *)w + 8 * (size_t)width;
        uint32_t sum[LN_ROWS * LN_PANEL];
        for (uint32_t m = 0; m < rows; m++)
            for (uint32_t j = 0; j < width; j++) sum[m * LN_PANEL + j] = ln_word_at(w + 4 * j);
        for (uint32_t k = 0, n; k < p->K; k += n) {
            n = fetch(source, k, &piece);
            add_products(sum, rows, &piece, n, products + (size_t)k * width, width);
        }
        for (uint32_t j = 0; j < live; j++) {
            const int32_t M = (int32_t)ln_word_at(w + 4 * (size_t)(width + j));
            for (uint32_t m = 0; m < rows; m++) y[m][o + j] = ln_finished_i8(p, sum[m * LN_PANEL + j], M);
        }
        w += ln_panel_i8_bytes(width, K);
    }
}

#endif
