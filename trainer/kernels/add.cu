/* add: the sum of two tensors, with an activation.
 *   forward    y[i] = act(x[i] + x2[i])
 *   backward   dh[i] = dy[i] * act'(y[i])    dx[i] = add[i] + dh[i]    dx2[i] = add2[i] + dh[i]
 * all (n)   real; add, add2 NULL: nothing is added; dx or dx2 NULL: not asked for; y is not read when ACT is none
 * Macro     ACT, the number of the activation
 * Launch    grid: any; block: any; a thread takes four values at a time, the tail one by one
 * Aliasing  y may be x or x2; dx and dx2 may be dy or their own add, not each other
 * Cost      forward reads 2n and writes n values; backward reads 2n and writes n for each gradient
 */
#include "common.cuh"

template <int V>
__device__ __forceinline__ void sum(const real *x, const real *x2, real *y, size_t i, float alpha)
{
    Pack<V> a = load<V>(x + i);
    const Pack<V> b = load<V>(x2 + i);
#pragma unroll
    for (int k = 0; k < V; k++) a.v[k] = act_apply(ACT, a.v[k] + b.v[k], alpha);
    store(y + i, a);
}

extern "C" __global__ void add_forward_f32(const real *x, const real *x2, real *y, int n, float alpha)
{
    wait_for_last_launch();
    const u32 stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (u32 q = first; q < (u32)n / 4; q += stride) sum<4>(x, x2, y, 4 * (size_t)q, alpha);
    for (u32 i = (u32)n / 4 * 4 + first; i < (u32)n; i += stride) sum<1>(x, x2, y, i, alpha);
}

/* The gradient of V values at i, given to whoever asked for it. */
template <int V>
__device__ __forceinline__ void pass(
    const real *dy, const real *y, const real *add, const real *add2, real *dx, real *dx2, size_t i, float alpha)
{
    Pack<V> d = load<V>(dy + i);
    if (ACT != ACT_NONE) {
        const Pack<V> out = load<V>(y + i);
#pragma unroll
        for (int k = 0; k < V; k++) d.v[k] = act_mask(ACT, d.v[k], out.v[k], alpha);
    }
    Pack<V> one = add ? load<V>(add + i) : fill<V>(0.0f), two = add2 ? load<V>(add2 + i) : fill<V>(0.0f);
#pragma unroll
    for (int k = 0; k < V; k++) {
        one.v[k] += d.v[k];
        two.v[k] += d.v[k];
    }
    if (dx) store(dx + i, one);
    if (dx2) store(dx2 + i, two);
}

extern "C" __global__ void add_backward_f32(
    const real *dy, const real *y, const real *add, const real *add2, real *dx, real *dx2, int n, float alpha)
{
    wait_for_last_launch();
    const u32 stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (u32 q = first; q < (u32)n / 4; q += stride) pass<4>(dy, y, add, add2, dx, dx2, 4 * (size_t)q, alpha);
    for (u32 i = (u32)n / 4 * 4 + first; i < (u32)n; i += stride) pass<1>(dy, y, add, add2, dx, dx2, i, alpha);
}
