/* layer_sums: what layers are measured by at the end of an epoch (layer_stats.py).
 *   channel_sums   sums[k][c] = sum x, sum x^2, 1 where any x > 0 else 0, over the rows of part k
 *   squares        sums[b] = sum a^2, sum (a - b)^2 over what block b takes; b NULL: the second is 0
 * x (R, C) real   a, b (n) float32, starts at multiples of 4 bytes   sums float64: (parts, C, 3) and (gridDim.x, 2)
 * Launch    channel_sums: grid (ceil(C / 32), parts), block (32, 8); squares: grid any, block a multiple of 32
 * Order     a thread sums its own values in ascending order; channel_sums: then the 8 rows of the block in order;
 *           squares: then block_sum. The host adds parts, and blocks, in order
 * Cost      reads x, or a and b, once
 */
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(256) channel_sums_f32(
    const real *__restrict__ x, double *__restrict__ sums, int R, int C)
{
    wait_for_last_launch();
    __shared__ double boxes[2][8][32];
    __shared__ int live[8][32];
    const int lane = threadIdx.x, row = threadIdx.y, c = blockIdx.x * 32 + lane, parts = gridDim.y;
    const int each = (R + parts - 1) / parts, first = blockIdx.y * each, end = min(R, first + each);
    double sum = 0.0, squares = 0.0;
    int any = 0;
    for (int r = first + row; r < end && c < C; r += 8) {
        const float v = get(x + (size_t)r * C + c);
        sum += (double)v;
        squares += (double)v * (double)v;
        any |= v > 0.0f;
    }
    boxes[0][row][lane] = sum;
    boxes[1][row][lane] = squares;
    live[row][lane] = any;
    __syncthreads();
    if (row > 0 || c >= C) return;
    for (int k = 1; k < 8; k++) {
        sum += boxes[0][k][lane];
        squares += boxes[1][k][lane];
        any |= live[k][lane];
    }
    double *place = sums + 3 * ((size_t)blockIdx.y * C + c);
    place[0] = sum;
    place[1] = squares;
    place[2] = (double)any;
}

extern "C" __global__ void __launch_bounds__(256) squares_f32(
    const float *__restrict__ a, const float *__restrict__ b, double *__restrict__ sums, int n)
{
    wait_for_last_launch();
    __shared__ double box[32];
    double own = 0.0, apart = 0.0;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        const float v = a[i], d = b ? v - b[i] : 0.0f;
        own += (double)v * (double)v;
        apart += (double)d * (double)d;
    }
    own = block_sum(own, box);
    apart = block_sum(apart, box);
    if (threadIdx.x > 0) return;
    sums[2 * blockIdx.x] = own;
    sums[2 * blockIdx.x + 1] = apart;
}
