/* Weights of int8 products in the form that some kernels need: with spans rounded up, as 16-bit numbers, or with biases that
 * make up for x + 128. */
#include "fast_int8_set.h"

static uint32_t width_of(const ln_product8 *p, uint32_t o)
{
    return p->O - o < LN_PANEL ? (p->O - o + 3) & ~3u : LN_PANEL;
}

size_t ln_product8_weights(const ln_int8 *kernels, const ln_product8 *p, uint32_t taken)
{
    const size_t numbers = (size_t)((p->O + 3) & ~3u) * p->n_u * p->n_v * p->n;
    return kernels->widens ? 2 * numbers : taken != p->n ? numbers : 0;
}

size_t ln_product8_biases(const ln_int8 *kernels, const ln_product8 *p)
{
    return kernels->lifts ? (p->O + LN_PANEL - 1) / LN_PANEL * LN_PANEL * sizeof(int32_t) : 0;
}

void ln_product8_prepare(const ln_int8 *kernels, const ln_product8 *p, uint32_t taken, const uint8_t *w, void *weights,
                         int32_t *bias)
{
    const uint32_t spans = p->n_u * p->n_v, K = spans * taken;
    int8_t *bytes = weights;
    int16_t *words = weights;

    for (uint32_t o = 0; o < p->O; o += LN_PANEL) {
        const uint32_t width = width_of(p, o);
        const int8_t *stored = (const int8_t *)w + 8 * (size_t)width; /* [group of four k][channel][four] */
        for (uint32_t i = 0; weights && i < spans * p->n; i += 4)
            for (uint32_t j = 0; j < width; j++)
                for (uint32_t k = i % p->n; k < i % p->n + 4; k++) {
                    const uint32_t at = i / p->n * taken + k;
                    const int8_t v = k < taken ? stored[(size_t)(at / 4) * 4 * width + 4 * j + at % 4] : 0;
                    if (kernels->widens) *words++ = v;
                    else *bytes++ = v;
                }
        for (uint32_t j = 0; bias && j < LN_PANEL; j++) {
            uint32_t sum = 0;
            for (uint32_t k = 0; j < width && k < K; k++)
                sum += (uint32_t)stored[(size_t)(k / 4) * 4 * width + 4 * j + k % 4];
            bias[o + j] = j < width ? (int32_t)(ln_u32(w + 4 * j) - 128 * sum) : 0;
        }
        w += (size_t)width * (8 + ((K + 3) & ~3u));
    }
}
