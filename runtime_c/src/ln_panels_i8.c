#include "ln_panels_i8.h"

#ifdef LN_WITH_I8

#include "ln_tile_i8.h"

void ln_finish_i8(const ln_panels_i8 *p, const uint32_t *sum, const uint8_t *M, int8_t *y, uint32_t n)
{
    const int32_t z = p->z, lo = p->q.lo, hi = p->q.hi;
    const uint32_t S = p->q.shift;
    for (const uint32_t *end = sum + n; sum != end; M += 4) {
        const uint32_t v = (uint32_t)ln_requant((int32_t)*sum++, (int32_t)ln_word_at(M), S) + (uint32_t)z;
        int32_t held = (int32_t)v < lo ? lo : (int32_t)v;
        held = held > hi ? hi : held;
        *y++ = (int8_t)held;
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
        for (uint32_t j = 0; j < width; j++)
            for (uint32_t m = 0; m < rows; m++) sum[m * LN_PANEL + j] = ln_word_at(w + 4 * (size_t)j);
        for (uint32_t k = 0, n; k < p->K; k += n) {
            n = fetch(source, k, &piece);
            add_products(sum, rows, &piece, n, products + (size_t)k * width, width);
        }
        for (uint32_t m = 0; m < rows; m++)
            ln_finish_i8(p, sum + m * LN_PANEL, w + 4 * (size_t)width, y[m] + o, live);
        w += ln_panel_i8_bytes(width, K);
    }
}

#endif
