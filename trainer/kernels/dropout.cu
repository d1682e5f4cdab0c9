/* dropout: a share of the values becomes 0, the rest grows by 1 / (1 - rate); backward draws the same again.
 *   y[i] = (add ? add[i] : 0) + x[i] * (u[i] >= rate ? scale : 0)
 *   u[i] = uniform(seed, DROPOUT, micro * nodes + node)[i] of trainer/rng.py: value i of the draw is word i mod 4 of
 *   philox(counter = (i / 4, step low, step high, DROPOUT), key = seed)
 * x, y, add (n)   real. Forward: add is NULL. Backward: x is dy, y is dx. step: the seed and micro-step; not read
 * when rate is 0
 * Launch    grid: any; block: any; a thread takes the four values of one counter at a time
 * Aliasing  y may be x or add
 * Cost      reads n (2n with add) and writes n values; 5 wide multiplications a value
 */
#include "common.cuh"

extern "C" __global__ void dropout_f32(
    const real *x, const real *add, const Step *step, real *y, int n, float rate, float scale, int node, int nodes)
{
    wait_for_last_launch();
    const u32 stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    u32 seed0 = 0, seed1 = 0;
    u64 draw = 0;
    if (rate > 0.0f) {
        seed0 = step->seed[0];
        seed1 = step->seed[1];
        draw = step_micro(step) * (u32)nodes + (u32)node;
    }
    for (u32 q = first; q < ((u32)n + 3) / 4; q += stride) {
        float keep[4] = {scale, scale, scale, scale};
        if (rate > 0.0f) {
            const Words random = philox(q, (u32)draw, (u32)(draw >> 32), STREAM_DROPOUT, seed0, seed1);
#pragma unroll
            for (int k = 0; k < 4; k++) keep[k] = uniform(random.w[k]) >= rate ? scale : 0.0f;
        }
        const size_t i = 4 * (size_t)q;
        if (i + 4 <= (size_t)n) {
            Pack<4> v = load<4>(x + i);
            const Pack<4> older = add ? load<4>(add + i) : fill<4>(0.0f);
#pragma unroll
            for (int k = 0; k < 4; k++) v.v[k] = add ? older.v[k] + v.v[k] * keep[k] : v.v[k] * keep[k];
            store(y + i, v);
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (i + k < (size_t)n) {
                    const float v = get(x + i + k) * keep[k];
                    put(y + i + k, add ? get(add + i + k) + v : v);
                }
        }
    }
}
