/* What follows a sum before it is stored, besides clamping and activating: prelu, and the sum with another tensor. Part
 * of fast_kernels.h. */

#ifndef PRELU
#define PRELU(v, slope) ((v) * either((v) > SPLAT(0.0f), SPLAT(1.0f), slope))
#endif

/* rows of n channels, `step` floats from one to the next: y = prelu(y) */
static void prelu_rows(const float *slopes, float *y, size_t step, size_t rows, size_t n)
{
    for (size_t k = 0; k < n; k += LANES) {
        const vf slope = load_some(slopes + k, n - k);
        float *at = y + k;
        for (size_t m = 0; m < rows; m++, at += step) {
            const vf v = load_some(at, n - k);
            store_some(at, PRELU(v, slope), n - k);
        }
    }
}

/* `rows` rows of one vector, from t, t_step apart, to y, and with what is at the same place of `other`, y_step apart:
 * prelu, add, clamp. n channels exist; slope: 1 where there is no prelu; other: NULL where nothing is added. */
INLINE void finish_rows(const ln_finish *f, const float *t, size_t t_step, vf slope, const float *other, float *y,
                        size_t y_step, uint32_t rows, size_t n)
{
    const vf lo = SPLAT(f->sum_lo), hi = SPLAT(f->sum_hi);
    if (other)
        for (uint32_t m = 0; m < rows; m++, t += t_step, y += y_step, other += y_step) {
            const vf v = LOAD(t), sum = PRELU(v, slope) + load_some(other, n);
            store_some(y, BELOW(hi, ABOVE(lo, sum)), n);
        }
    else
        for (uint32_t m = 0; m < rows; m++, t += t_step, y += y_step) {
            const vf v = LOAD(t);
            store_some(y, PRELU(v, slope), n);
        }
}
