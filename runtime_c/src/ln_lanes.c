#include "ln_cold.h"
#include "ln_lanes.h"

void ln_get_some(float *t, const float *x, size_t n)
{
    for (size_t k = 0; k < LN_LANES; k++) t[k] = k < n ? x[k] : 0.0f;
}

float ln_sum_lanes(float *t)
{
    for (int n = LN_LANES / 2; n; n /= 2)
        for (int k = 0; k < n; k++) t[k] += t[n + k];
    return t[0];
}

void ln_put_some(float *y, const float *t, size_t n)
{
    for (size_t k = 0; k < n; k++) y[k] = t[k];
}

#include "ln_cold_end.h"
