/* Weights of int8 products in the form that some kernels need: with spans rounded up, as 16-bit numbers, with biases that
 * make up for x + 128, or for Winograd's algorithm. */
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
    const uint32_t spans = p->n_u * p->n_v, K = spans * taken, together = kernels->widens == 2 ? 2 : 4;
    int8_t *bytes = weights;
    int16_t *words = weights;

    for (uint32_t o = 0; o < p->O; o += LN_PANEL) {
        const uint32_t width = width_of(p, o);
        const int8_t *stored = (const int8_t *)w + 8 * (size_t)width; /* [group of four k][channel][four] */
        for (uint32_t i = 0; weights && i < spans * p->n; i += together)
            for (uint32_t j = 0; j < width; j++)
                for (uint32_t k = i % p->n; k < i % p->n + together; k++) {
                    const uint32_t at = i / p->n * taken + k;
                    const int8_t v = k < taken ? stored[(size_t)(at / 4) * 4 * width + 4 * j + at % 4] : 0;
                    if (kernels->widens) *words++ = (int16_t)(kernels->widens == 2 ? 2 * v : v);
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

/* Points of three values: t = 24 G g, the last one halved (fast_int8_winograd.h). */
static void weights_to_points8(const int32_t *g, int32_t *t)
{
    const int32_t ends = g[0] + g[2], middle = g[1];
    t[0] = 6 * g[0];
    t[1] = -4 * (ends + middle);
    t[2] = -4 * (ends - middle);
    t[3] = g[0] + 4 * g[2] + 2 * middle;
    t[4] = g[0] + 4 * g[2] - 2 * middle;
    t[5] = 12 * g[2];
}

int ln_wino8_fits(const ln_wino8 *p, const uint8_t *w)
{
    for (uint32_t panel = 0; panel < p->O / LN_PANEL; panel++) {
        const int8_t *stored = (const int8_t *)w + panel * p->stored + 8 * LN_PANEL;
        int32_t sums[LN_PANEL] = {0}; /* of a channel's weights without their signs: times 128, what its sum can be */
        for (uint32_t i = 0; i < 9 * p->C * LN_PANEL; i++) {
            int32_t *sum = &sums[i / 4 % LN_PANEL];
            *sum += stored[i] < 0 ? -stored[i] : stored[i];
            if (*sum >= 1 << 18) return 0;
        }
    }
    return 1;
}

void ln_wino8_prepare(const ln_wino8 *p, uint32_t pairs, const uint8_t *w, int16_t *weights)
{
    const size_t step = ln_wino8_weights_step(p);
    for (uint32_t panel = 0; panel < p->O / LN_PANEL; panel++) {
        const int8_t *stored = (const int8_t *)w + panel * p->stored + 8 * LN_PANEL; /* [row][column][C / 4][16][4] */
        int16_t *first = weights + (size_t)panel * p->C * LN_PANEL;
        for (uint32_t c = 0; c < p->C; c++)
            for (uint32_t j = 0; j < LN_PANEL; j++) {
                int32_t h[6][3], g[3], t[6];
                const int8_t *at = stored + (size_t)(c / 4) * 4 * LN_PANEL + 4 * j + c % 4;
                int16_t *to = first + (pairs ? c / 2 * 2 * LN_PANEL + 2 * j + c % 2 : c * LN_PANEL + j);
                for (uint32_t v = 0; v < 3; v++) {
                    for (uint32_t u = 0; u < 3; u++) g[u] = at[(size_t)(3 * u + v) * p->C * LN_PANEL];
                    weights_to_points8(g, t);
                    for (uint32_t u = 0; u < 6; u++) h[u][v] = t[u];
                }
                for (uint32_t u = 0; u < 6; u++) {
                    weights_to_points8(h[u], t);
                    for (uint32_t v = 0; v < 6; v++, to += step) *to = (int16_t)t[v];
                }
            }
    }
}
