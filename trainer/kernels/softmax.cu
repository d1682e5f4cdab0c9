/* softmax: each row becomes probabilities.
 *   forward    y[r,c] = e^(x[r,c] - m) / sum_c e^(x[r,c] - m),  m = max_c x[r,c]
 *   backward   dx[r,c] = add[r,c] + y[r,c] * (dy[r,c] - sum_c dy[r,c] y[r,c])
 * all (R, C)   float32; add NULL: nothing is added
 * Launch    *_warp: a warp owns a row, block (32 k); *_block: a block of whole warps owns a row. grid: any
 * Aliasing  y may be x; dx may be dy or add: a thread reads and writes the same elements
 * Order     lanes sum their elements in ascending order, then a fixed tree
 * Cost      each pass but the first finds the row in the cache: 8 bytes a value from memory forward, 12 backward
 */
#include "common.cuh"

template <bool BLOCK> __device__ __forceinline__ void forward(const float *x, float *y, int R, int C, float *box)
{
    const int rank = team_rank<BLOCK>(), size = team_size<BLOCK>();
    for (int r = team_index<BLOCK>(); r < R; r += team_count<BLOCK>()) {
        const float *from = x + (size_t)r * C;
        float *to = y + (size_t)r * C;
        float top = from[min(rank, C - 1)], sum = 0.0f;
        for (int c = rank; c < C; c += size) top = fmaxf(top, from[c]);
        top = team_max<BLOCK>(top, box);
        for (int c = rank; c < C; c += size) sum += expf(from[c] - top);
        sum = team_sum<BLOCK>(sum, box);
        for (int c = rank; c < C; c += size) to[c] = expf(from[c] - top) / sum;
    }
}

template <bool BLOCK>
__device__ __forceinline__ void backward(
    const float *dy, const float *y, const float *add, float *dx, int R, int C, float *box)
{
    const int rank = team_rank<BLOCK>(), size = team_size<BLOCK>();
    for (int r = team_index<BLOCK>(); r < R; r += team_count<BLOCK>()) {
        const size_t row = (size_t)r * C;
        float dot = 0.0f;
        for (int c = rank; c < C; c += size) dot = fmaf(dy[row + c], y[row + c], dot);
        dot = team_sum<BLOCK>(dot, box);
        for (int c = rank; c < C; c += size) {
            const float d = y[row + c] * (dy[row + c] - dot);
            dx[row + c] = add ? add[row + c] + d : d;
        }
    }
}

extern "C" __global__ void softmax_forward_warp_f32(const float *x, float *y, int R, int C)
{
    forward<false>(x, y, R, C, (float *)0);
}

extern "C" __global__ void softmax_forward_block_f32(const float *x, float *y, int R, int C)
{
    __shared__ float box[32];
    forward<true>(x, y, R, C, box);
}

extern "C" __global__ void softmax_backward_warp_f32(
    const float *dy, const float *y, const float *add, float *dx, int R, int C)
{
    backward<false>(dy, y, add, dx, R, C, (float *)0);
}

extern "C" __global__ void softmax_backward_block_f32(
    const float *dy, const float *y, const float *add, float *dx, int R, int C)
{
    __shared__ float box[32];
    backward<true>(dy, y, add, dx, R, C, box);
}
