/* activation: an activation on its own, element by element.
 *   forward    y[i] = act(x[i])
 *   backward   dx[i] = add[i] + dy[i] * act'    act' from r = y where the output decides it, else from r = x
 * x, y, dy, r, add, dx (n)   real; add NULL: dx = the product alone
 * Macro     ACT, the number of the activation
 * Launch    grid: any; block: any; a thread takes four values at a time, the tail one by one
 * Aliasing  y may be x; dx may be dy or add
 * Cost      forward reads n and writes n values; backward reads 2n (3n with add) and writes n
 */
#include "common.cuh"

template <int V> __device__ __forceinline__ void apply(const real *x, real *y, size_t i, float alpha)
{
    Pack<V> h = load<V>(x + i);
#pragma unroll
    for (int k = 0; k < V; k++) h.v[k] = act_apply(ACT, h.v[k], alpha);
    store(y + i, h);
}

extern "C" __global__ void activation_forward_f32(const real *x, real *y, int n, float alpha)
{
    wait_for_last_launch();
    const u32 stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (u32 q = first; q < (u32)n / 4; q += stride) apply<4>(x, y, 4 * (size_t)q, alpha);
    for (u32 i = (u32)n / 4 * 4 + first; i < (u32)n; i += stride) apply<1>(x, y, i, alpha);
}

template <int V>
__device__ __forceinline__ void gradient(
    const real *dy, const real *r, const real *add, real *dx, size_t i, float alpha)
{
    Pack<V> d = load<V>(dy + i);
    const Pack<V> at = load<V>(r + i), older = add ? load<V>(add + i) : fill<V>(0.0f);
#pragma unroll
    for (int k = 0; k < V; k++)
        d.v[k] = older.v[k] + (ACT_FROM_OUTPUT(ACT) ? act_mask(ACT, d.v[k], at.v[k], alpha)
                                                    : act_input_grad(ACT, d.v[k], at.v[k]));
    store(dx + i, d);
}

extern "C" __global__ void activation_backward_f32(
    const real *dy, const real *r, const real *add, real *dx, int n, float alpha)
{
    wait_for_last_launch();
    const u32 stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (u32 q = first; q < (u32)n / 4; q += stride) gradient<4>(dy, r, add, dx, 4 * (size_t)q, alpha);
    for (u32 i = (u32)n / 4 * 4 + first; i < (u32)n; i += stride) gradient<1>(dy, r, add, dx, i, alpha);
}
