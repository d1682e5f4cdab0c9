/* sum: two tensors added, where a gradient comes from several nodes; and partial sums folded into one.
 *   sum    y[i] = a[i] + b[i]
 *   fold   out[i] = (accumulate ? out[i] : 0) + sum_s part[s, i]; the first n1 sums go to out1, the other n2 to out2
 * a, b, y (n) real   part (S, n1 + n2)   out1 (n1)   out2 (n2) float; out1, out2 NULL: not asked for
 * Launch    sum: grid and block any; four values at a time, the tail one by one. fold: grid ceil((n1 + n2) / 32), block
 *           (32 k): each of k groups sums every k-th part of 32 values
 * Aliasing  y may be a or b; the outputs of fold overlap nothing
 * Order     s ascends in each group, then the groups do
 */
#include "common.cuh"

template <int V> __device__ __forceinline__ void sum(const real *a, const real *b, real *y, size_t i)
{
    Pack<V> p = load<V>(a + i);
    const Pack<V> q = load<V>(b + i);
#pragma unroll
    for (int k = 0; k < V; k++) p.v[k] += q.v[k];
    store(y + i, p);
}

extern "C" __global__ void sum_f32(const real *a, const real *b, real *y, int n)
{
    wait_for_last_launch();
    const u32 stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (u32 q = first; q < (u32)n / 4; q += stride) sum<4>(a, b, y, 4 * (size_t)q);
    for (u32 i = (u32)n / 4 * 4 + first; i < (u32)n; i += stride) sum<1>(a, b, y, i);
}

extern "C" __global__ void __launch_bounds__(1024) fold_f32(
    const float *__restrict__ part, float *out1, float *out2, int S, int n1, int n2, int accumulate)
{
    wait_for_last_launch();
    __shared__ float box[1024];
    const int n = n1 + n2, i = blockIdx.x * 32 + (threadIdx.x & 31), group = threadIdx.x >> 5, groups = blockDim.x >> 5;
    float total = 0.0f;
    if (i < n)
#pragma unroll 4
        for (int s = group; s < S; s += groups) total += part[(size_t)s * n + i];
    box[threadIdx.x] = total;
    __syncthreads();
    if (group > 0 || i >= n) return;
    for (int g = 1; g < groups; g++) total += box[32 * g + threadIdx.x];
    float *out = i < n1 ? out1 : out2;
    if (!out) return;
    if (i >= n1) out += i - n1;
    else out += i;
    *out = accumulate ? *out + total : total;
}
