#include "ln_lanes.h"

void ln_get_some(float *t, const float *x, size_t n)
{
    for (size_t k = 0; k < LN_LANES; k++) t[k] = k < n ? x[k] : 0.0f;
}

void ln_put_some(float *y, const float *t, size_t n)
{
    for (size_t k = 0; k < n; k++) y[k] = t[k];
}
