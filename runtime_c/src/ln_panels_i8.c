#include "ln_panels_i8.h"

#ifndef LN_WITHOUT_I8

enum { QUAD = 4 }; /* values of k whose weights stand together */

/* sum[m][j] += x[m][k..k+n) times the weights of these, for the `width` columns of a panel; sum has rows of LN_PANEL. */
static void add_products(uint32_t *sum, uint32_t rows, const ln_piece *p, uint32_t n, const int8_t *w, uint32_t width)
{
    for (uint32_t k = 0; k < n; k += QUAD, w += (size_t)QUAD * width)
        for (uint32_t m = 0; m < rows; m++) {
            const int8_t *x = p->x[m] + k;
            const int32_t x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
            uint32_t *s = sum + m * LN_PANEL;
            const int8_t *v = w;
            for (uint32_t j = 0; j < width; j++, v += QUAD)
                s[j] += (uint32_t)(x0 * v[0] + x1 * v[1] + x2 * v[2] + x3 * v[3]);
        }
}

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
            for (uint32_t j = 0; j < width; j++) sum[m * LN_PANEL + j] = ln_u32(w + 4 * j);
        for (uint32_t k = 0, n; k < p->K; k += n) {
            n = fetch(source, k, &piece);
            add_products(sum, rows, &piece, n, products + (size_t)k * width, width);
        }
        for (uint32_t j = 0; j < live; j++) {
            const int32_t M = ln_i32(w + 4 * (size_t)(width + j));
            for (uint32_t m = 0; m < rows; m++) y[m][o + j] = ln_finished_i8(p, sum[m * LN_PANEL + j], M);
        }
        w += ln_panel_i8_bytes(width, K);
    }
}

#endif
