/* The products of ln_panels_i8.c, which alone includes this file: plain C, and what processors with short vectors of int8
 * take in its place. All give the same sums.
 *
 * add_products: sum[m][j] += x[m][k..k+n) times the weights of these, for the `width` columns of a panel; sum has rows of
 * LN_PANEL. n is a multiple of 4, or x has bytes up to the next one, whose weights are 0. */
#include "ln_dsp.h"

enum { QUAD = 4 }; /* values of k whose weights stand together */

#ifdef LN_MVE

/* Sixteen values of k at once; `live` has bits for the bytes of them that exist, others are read as 0. Weights of one
 * channel stand four by four, `apart` bytes one from the other. */
LN_DSP_INLINE int8x16_t weights_of(const int8_t *w, uint32x4_t apart, mve_pred16_t live)
{
    return vreinterpretq_s8_s32(vldrwq_gather_offset_z_s32((const int32_t *)(const void *)w, apart, live));
}

/* Two rows and one column. */
static LN_APART void tile_2x1(uint32_t *s, const int8_t *x0, const int8_t *x1, uint32_t n, const int8_t *w, uint32x4_t apart,
                     uint32_t step)
{
    int32_t s0 = (int32_t)s[0], s1 = (int32_t)s[LN_PANEL];
    for (int32_t left = (int32_t)n; left > 0; left -= 16, x0 += 16, x1 += 16, w += step) {
        const mve_pred16_t live = vctp8q((uint32_t)left);
        const int8x16_t v = weights_of(w, apart, live);
        s0 = vmladavaq_s8(s0, vldrbq_z_s8(x0, live), v);
        s1 = vmladavaq_s8(s1, vldrbq_z_s8(x1, live), v);
    }
    s[0] = (uint32_t)s0;
    s[LN_PANEL] = (uint32_t)s1;
}

/* One row and two columns. */
static LN_APART void tile_1x2(uint32_t *s, const int8_t *x, uint32_t n, const int8_t *w, uint32x4_t apart, uint32_t step)
{
    int32_t s0 = (int32_t)s[0], s1 = (int32_t)s[1];
    for (int32_t left = (int32_t)n; left > 0; left -= 16, x += 16, w += step) {
        const mve_pred16_t live = vctp8q((uint32_t)left);
        const int8x16_t v = vldrbq_z_s8(x, live);
        s0 = vmladavaq_s8(s0, v, weights_of(w, apart, live));
        s1 = vmladavaq_s8(s1, v, weights_of(w + QUAD, apart, live));
    }
    s[0] = (uint32_t)s0;
    s[1] = (uint32_t)s1;
}

static void add_products(uint32_t *sum, uint32_t rows, const ln_piece *p, uint32_t n, const int8_t *w, uint32_t width)
{
    const uint32x4_t apart = vmulq_n_u32(vidupq_n_u32(0, QUAD), width);
    uint32_t m = 0;

    n = (n + QUAD - 1) / QUAD * QUAD;
    for (; m + 1 < rows; m += 2)
        for (uint32_t j = 0; j < width; j++)
            tile_2x1(sum + m * LN_PANEL + j, p->x[m], p->x[m + 1], n, w + QUAD * j, apart, 16 * width);
    if (m < rows)
        for (uint32_t j = 0; j < width; j += 2)
            tile_1x2(sum + m * LN_PANEL + j, p->x[m], n, w + QUAD * j, apart, 16 * width);
}

#elif defined(LN_DSP)

/* Two rows and two columns: 16 products take 4 loads, 8 extensions and 8 SMLADs. w steps `step` bytes from four k to the
 * next. Counter and step share a register, as there are no more. */
static LN_APART void tile_2x2(uint32_t *s, const int8_t *x0, const int8_t *x1, uint32_t n, const int8_t *w, uint32_t step)
{
    uint32_t s00 = s[0], s01 = s[1], s10 = s[LN_PANEL], s11 = s[LN_PANEL + 1];
    const int8_t *end = x0 + n;
    do {
        const int8x4_t a = ln_four(x0), b = ln_four(x1);
        const int16x2_t a02 = ln_even(a), a13 = ln_odd(a), b02 = ln_even(b), b13 = ln_odd(b);
        const int8x4_t u = ln_four(w);
        const int16x2_t u02 = ln_even(u);
        s00 = ln_mac_pairs(s00, a02, u02);
        s10 = ln_mac_pairs(s10, b02, u02);
        const int16x2_t u13 = ln_odd(u);
        s00 = ln_mac_pairs(s00, a13, u13);
        s10 = ln_mac_pairs(s10, b13, u13);
        const int8x4_t v = ln_four(w + QUAD);
        const int16x2_t v02 = ln_even(v);
        s01 = ln_mac_pairs(s01, a02, v02);
        s11 = ln_mac_pairs(s11, b02, v02);
        const int16x2_t v13 = ln_odd(v);
        s01 = ln_mac_pairs(s01, a13, v13);
        s11 = ln_mac_pairs(s11, b13, v13);
        x0 += QUAD;
        x1 += QUAD;
        w += step;
    } while (x0 < end);
    s[0] = s00;
    s[1] = s01;
    s[LN_PANEL] = s10;
    s[LN_PANEL + 1] = s11;
}

static LN_APART void tile_1x4(uint32_t *s, const int8_t *x, uint32_t n, const int8_t *w, uint32_t step)
{
    uint32_t s0 = s[0], s1 = s[1], s2 = s[2], s3 = s[3];
    for (const int8_t *end = x + n; x < end; x += QUAD, w += step) {
        const int8x4_t a = ln_four(x);
        const int16x2_t a02 = ln_even(a), a13 = ln_odd(a);
        int8x4_t v = ln_four(w);
        s0 = ln_mac_pairs(ln_mac_pairs(s0, a02, ln_even(v)), a13, ln_odd(v));
        v = ln_four(w + QUAD);
        s1 = ln_mac_pairs(ln_mac_pairs(s1, a02, ln_even(v)), a13, ln_odd(v));
        v = ln_four(w + 2 * QUAD);
        s2 = ln_mac_pairs(ln_mac_pairs(s2, a02, ln_even(v)), a13, ln_odd(v));
        v = ln_four(w + 3 * QUAD);
        s3 = ln_mac_pairs(ln_mac_pairs(s3, a02, ln_even(v)), a13, ln_odd(v));
    }
    s[0] = s0;
    s[1] = s1;
    s[2] = s2;
    s[3] = s3;
}

static void add_products(uint32_t *sum, uint32_t rows, const ln_piece *p, uint32_t n, const int8_t *w, uint32_t width)
{
    uint32_t m = 0;

    for (; m + 1 < rows; m += 2)
        for (uint32_t j = 0; j < width; j += 2)
            tile_2x2(sum + m * LN_PANEL + j, p->x[m], p->x[m + 1], n, w + QUAD * j, QUAD * width);
    if (m < rows)
        for (uint32_t j = 0; j < width; j += 4)
            tile_1x4(sum + m * LN_PANEL + j, p->x[m], n, w + QUAD * j, QUAD * width);
}

#else

/* s[j] += products of four values of one row, for `width` columns */
static LN_APART void add_quad(uint32_t *s, const int8_t *x, const int8_t *w, uint32_t width)
{
    const int32_t x0 = x[0], x1 = x[1], x2 = x[2], x3 = x[3];
    for (const uint32_t *end = s + width; s != end; w += QUAD)
        *s++ += (uint32_t)(x0 * w[0] + x1 * w[1] + x2 * w[2] + x3 * w[3]);
}

static void add_products(uint32_t *sum, uint32_t rows, const ln_piece *p, uint32_t n, const int8_t *w, uint32_t width)
{
    for (uint32_t k = 0; k < n; k += QUAD, w += (size_t)QUAD * width)
        for (uint32_t m = 0; m < rows; m++) add_quad(sum + m * LN_PANEL, p->x[m] + k, w, width);
}

#endif
