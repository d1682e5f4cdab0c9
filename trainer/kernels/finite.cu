/* finite: where the first value of an array is that is infinite or no number.
 *   first = min(first, least i with x[i] not finite)
 * x (n)   real     first (1) int32, set to INT_MAX before: that stays where all are finite
 * Launch    grid: any; block: any; four values at a time, the tail one by one
 * Order     a minimum of whole numbers (atomicMin): the same whatever comes first
 * Cost      reads x once
 */
#include "common.cuh"

__device__ __forceinline__ bool finite(float v) { return v - v == 0.0f; }

extern "C" __global__ void __launch_bounds__(256) finite_f32(const real *__restrict__ x, int *first, int n)
{
    wait_for_last_launch();
    const u32 stride = gridDim.x * blockDim.x, thread = blockIdx.x * blockDim.x + threadIdx.x;
    int found = 0x7fffffff;
    for (u32 q = thread; q < (u32)n / 4 && found > n; q += stride) { /* ascending: the first hit is this thread's least */
        const Pack<4> v = load<4>(x + 4 * (size_t)q);
#pragma unroll
        for (int k = 3; k >= 0; k--)
            if (!finite(v.v[k])) found = 4 * q + k;
    }
    for (u32 i = (u32)n / 4 * 4 + thread; i < (u32)n; i += stride)
        if (!finite(get(x + i))) found = min(found, (int)i);
    if (found < n) atomicMin(first, found);
}
