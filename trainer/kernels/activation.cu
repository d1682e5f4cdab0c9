/* activation: an activation on its own, element by element.
 *   forward    y[i] = act(x[i])
 *   backward   dx[i] = add[i] + dy[i] * act'    act' from r = y where the output decides it, else from r = x
 * x, y, dy, r, add, dx (n)   float32; add NULL: dx = the product alone
 * Macro     ACT, the number of the activation
 * Launch    grid: any; block: any; a thread takes four values at a time, the tail one by one
 * Aliasing  y may be x; dx may be dy or add
 * Cost      forward reads 4n and writes 4n bytes; backward reads 8n (12n with add) and writes 4n
 */
#include "common.cuh"

extern "C" __global__ void activation_forward_f32(const float *x, float *y, int n, float alpha)
{
    const u32 stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (u32 q = first; q < (u32)n / 4; q += stride) {
        Pack<4> h = load<4>(x + 4 * (size_t)q);
#pragma unroll
        for (int k = 0; k < 4; k++) h.v[k] = act_apply(ACT, h.v[k], alpha);
        store(y + 4 * (size_t)q, h);
    }
    for (u32 i = (u32)n / 4 * 4 + first; i < (u32)n; i += stride) y[i] = act_apply(ACT, x[i], alpha);
}

__device__ __forceinline__ float gradient(float dy, float r, float alpha)
{
    return ACT_FROM_OUTPUT(ACT) ? act_mask(ACT, dy, r, alpha) : act_input_grad(ACT, dy, r);
}

extern "C" __global__ void activation_backward_f32(
    const float *dy, const float *r, const float *add, float *dx, int n, float alpha)
{
    const u32 stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (u32 q = first; q < (u32)n / 4; q += stride) {
        Pack<4> d = load<4>(dy + 4 * (size_t)q);
        const Pack<4> at = load<4>(r + 4 * (size_t)q);
        const Pack<4> older = add ? load<4>(add + 4 * (size_t)q) : fill<4>(0.0f);
#pragma unroll
        for (int k = 0; k < 4; k++) d.v[k] = older.v[k] + gradient(d.v[k], at.v[k], alpha);
        store(dx + 4 * (size_t)q, d);
    }
    for (u32 i = (u32)n / 4 * 4 + first; i < (u32)n; i += stride)
        dx[i] = (add ? add[i] : 0.0f) + gradient(dy[i], r[i], alpha);
}
