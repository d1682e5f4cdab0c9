/* Walking an array LN_LANES values at a time. A kernel copies them to a local array, works on all of them, and copies
 * back those that exist: so its loops have a fixed length, which compilers turn into vector code, and y may be x. */
#ifndef LN_LANES_H
#define LN_LANES_H

#include "ln_vec8.h"

/* Of n values, how many are taken together from `first` on. */
static inline size_t ln_live_lanes(size_t n, size_t first)
{
    return n - first < LN_LANES ? n - first : LN_LANES;
}

/* The functions below for n < LN_LANES. */
void ln_get_some(float *t, const float *x, size_t n);
void ln_put_some(float *y, const float *t, size_t n);

/* t = x[0..n), the rest of its LN_LANES zero */
static inline void ln_get_lanes(float *t, const float *x, size_t n)
{
    if (n < LN_LANES) {
        ln_get_some(t, x, n);
        return;
    }
    for (int k = 0; k < LN_LANES; k += 8) ln_store8(t + k, ln_load8(x + k));
}

/* ln_get_lanes of weights */
static inline void ln_get_weights(float *t, const float *w, size_t n)
{
    ln_get_lanes(t, w, n);
#ifdef LN_BIG_ENDIAN
    for (size_t k = 0; k < n; k++) t[k] = ln_stored_f32(w + k);
#endif
}

/* y[0..n) = t */
static inline void ln_put_lanes(float *y, const float *t, size_t n)
{
    if (n < LN_LANES) {
        ln_put_some(y, t, n);
        return;
    }
    for (int k = 0; k < LN_LANES; k += 8) ln_store8(y + k, ln_load8(t + k));
}

/* t[0] + ... + t[LN_LANES-1], in pairs; t is used up */
float ln_sum_lanes(float *t);

#endif
