/* average: the moving average of weights after an update (formula: aids.py).
 *   average += (1 - d) (weights - average), d = min(decay, (1 + t) / (10 + t))
 * t: of step, from 1   weights, average (n)   float32, starts at multiples of 16 bytes
 * Launch    grid: any; block: any; four values a thread, the tail one by one
 * Order     each value by itself
 * Cost      reads both, writes the average: 12 bytes a weight
 */
#include "common.cuh"

template <int V>
__device__ __forceinline__ void follow(const float *weights, float *average, size_t i, float rest)
{
    const Pack<V> w = load<V>(weights + i);
    Pack<V> a = load<V>(average + i);
#pragma unroll
    for (int k = 0; k < V; k++) a.v[k] = fmaf(rest, w.v[k] - a.v[k], a.v[k]);
    store(average + i, a);
}

extern "C" __global__ void __launch_bounds__(256) average_f32(
    const float *__restrict__ weights, float *average, const Step *__restrict__ step, int n, float decay)
{
    wait_for_last_launch();
    const u32 stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    const float t = (float)step->t, rest = 1.0f - fminf(decay, (1.0f + t) / (10.0f + t));
    for (u32 q = first; q < (u32)n / 4; q += stride) follow<4>(weights, average, 4 * (size_t)q, rest);
    for (u32 i = (u32)n / 4 * 4 + first; i < (u32)n; i += stride) follow<1>(weights, average, i, rest);
}
