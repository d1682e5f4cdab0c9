/* global_avg_pool: the mean of each channel over the whole image.
 *   forward    y[n,c] = sum_p x[n,p,c] / P
 *   backward   dx[n,p,c] = add[n,p,c] + dy[n,c] / P
 * x, dx, add (N,P,C)  y, dy (N,C)   real, P = H*W; add NULL: nothing is added
 * Macro     VEC: 4 where C is a multiple of 4, else 1
 * Launch    forward: columns.cuh, grid (tiles, images). backward: x covers C/V, y covers N * P; block: any
 * Aliasing  dx may be add; nothing else overlaps
 * Order     columns.cuh
 * Cost      forward reads each pixel once; backward writes it
 */
#include "columns.cuh"

enum { V = VEC };

extern "C" __global__ void __launch_bounds__(512) global_avg_pool_forward_f32(
    const real *__restrict__ x, real *__restrict__ y, int N, int P, int C, int log_tx)
{
    wait_for_last_launch();
    __shared__ float box[COLUMN_BOX];
    const Columns at = columns<V>(log_tx);
    for (int n = blockIdx.y; n < N; n += gridDim.y) {
        Pack<V> sum = fill<V>(0.0f);
        if (at.c < C)
#pragma unroll 4
            for (int p = at.ty; p < P; p += at.TY) {
                const Pack<V> v = load<V>(x + ((size_t)n * P + p) * C + at.c);
#pragma unroll
                for (int k = 0; k < V; k++) sum.v[k] += v.v[k];
            }
        sum = column_sum(sum, at, box);
        if (at.c < C && at.ty == 0) {
#pragma unroll
            for (int k = 0; k < V; k++) sum.v[k] /= (float)P;
            store(y + (size_t)n * C + at.c, sum);
        }
    }
}

extern "C" __global__ void global_avg_pool_backward_f32(
    const real *__restrict__ dy, const real *add, real *dx, int N, int P, int C)
{
    wait_for_last_launch();
    const int c = (blockIdx.x * blockDim.x + threadIdx.x) * V;
    if (c >= C) return;
    for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < N * P; row += gridDim.y * blockDim.y) {
        Pack<V> d = load<V>(dy + (size_t)(row / P) * C + c);
        const Pack<V> older = add ? load<V>(add + (size_t)row * C + c) : fill<V>(0.0f);
#pragma unroll
        for (int k = 0; k < V; k++) d.v[k] = older.v[k] + d.v[k] / (float)P;
        store(dx + (size_t)row * C + c, d);
    }
}
