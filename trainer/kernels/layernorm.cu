/* layernorm: each row to mean 0 and variance 1, then scaled and shifted.
 *   forward    y[r,c] = (x[r,c] - mean[r]) * inv_std[r] * gamma[c] + beta[c]
 *   backward   xh = (x - mean) * inv_std, g = dy * gamma, dbeta = sum_r dy, dgamma = sum_r dy * xh,
 *              dx = add + inv_std * (g - mean_c(g) - xh * mean_c(g * xh))
 * x, y, dy, dx, add (R, C)   gamma, beta (C)   mean, inv_std (R)   part (S, 2, C)   float32; add NULL: nothing is
 * added; mean, inv_std NULL in forward: not kept
 * Macro     VEC: 4 where C is a multiple of 4, else 1
 * Launch    *_warp: a warp owns a row, block (32 k); *_block: a block of whole warps owns a row; grid: any.
 *           sums: columns.cuh, grid (tiles, S); it comes before dx, and fold_f32 (sum.cu) after it
 * Aliasing  y may be x; dx may be dy or add: a thread reads and writes the same elements
 * Order     lanes sum their elements in ascending order, then a fixed tree; sums as columns.cuh
 * Cost      the later passes over a row find it in the cache: 8 bytes a value from memory forward, 20 backward
 */
#include "columns.cuh"

enum { V = VEC };

/* Two passes: the variance is summed around the mean, so a large mean costs no digits. */
template <bool BLOCK>
__device__ __forceinline__ void forward(
    const float *x, const float *gamma, const float *beta, float *y, float *mean, float *inv_std, int R, int C,
    float eps, float *box)
{
    const int rank = team_rank<BLOCK>(), size = team_size<BLOCK>();
    for (int r = team_index<BLOCK>(); r < R; r += team_count<BLOCK>()) {
        const float *from = x + (size_t)r * C;
        float *to = y + (size_t)r * C;
        float sum = 0.0f, squares = 0.0f;
        for (int c = rank * V; c < C; c += size * V) {
            const Pack<V> p = load<V>(from + c);
#pragma unroll
            for (int k = 0; k < V; k++) sum += p.v[k];
        }
        const float mu = team_sum<BLOCK>(sum, box) / (float)C;
        for (int c = rank * V; c < C; c += size * V) {
            const Pack<V> p = load<V>(from + c);
#pragma unroll
            for (int k = 0; k < V; k++) squares = fmaf(p.v[k] - mu, p.v[k] - mu, squares);
        }
        const float inv = 1.0f / sqrtf(team_sum<BLOCK>(squares, box) / (float)C + eps);
        for (int c = rank * V; c < C; c += size * V) {
            Pack<V> p = load<V>(from + c);
            const Pack<V> g = load<V>(gamma + c), b = load<V>(beta + c);
#pragma unroll
            for (int k = 0; k < V; k++) p.v[k] = fmaf((p.v[k] - mu) * inv, g.v[k], b.v[k]);
            store(to + c, p);
        }
        if (mean && rank == 0) {
            mean[r] = mu;
            inv_std[r] = inv;
        }
    }
}

template <bool BLOCK>
__device__ __forceinline__ void backward(
    const float *dy, const float *x, const float *gamma, const float *mean, const float *inv_std, const float *add,
    float *dx, int R, int C, float *box)
{
    const int rank = team_rank<BLOCK>(), size = team_size<BLOCK>();
    for (int r = team_index<BLOCK>(); r < R; r += team_count<BLOCK>()) {
        const size_t row = (size_t)r * C;
        const float mu = mean[r], inv = inv_std[r];
        float sum = 0.0f, dot = 0.0f;
        for (int c = rank * V; c < C; c += size * V) {
            const Pack<V> d = load<V>(dy + row + c), p = load<V>(x + row + c), w = load<V>(gamma + c);
#pragma unroll
            for (int k = 0; k < V; k++) {
                const float g = d.v[k] * w.v[k];
                sum += g;
                dot = fmaf(g, (p.v[k] - mu) * inv, dot);
            }
        }
        sum = team_sum<BLOCK>(sum, box) / (float)C;
        dot = team_sum<BLOCK>(dot, box) / (float)C;
        for (int c = rank * V; c < C; c += size * V) {
            Pack<V> d = load<V>(dy + row + c);
            const Pack<V> p = load<V>(x + row + c), w = load<V>(gamma + c);
            const Pack<V> older = add ? load<V>(add + row + c) : fill<V>(0.0f);
#pragma unroll
            for (int k = 0; k < V; k++)
                d.v[k] = fmaf(inv, d.v[k] * w.v[k] - sum - (p.v[k] - mu) * inv * dot, older.v[k]);
            store(dx + row + c, d);
        }
    }
}

extern "C" __global__ void layernorm_forward_warp_f32(
    const float *x, const float *__restrict__ gamma, const float *__restrict__ beta, float *y, float *mean,
    float *inv_std, int R, int C, float eps)
{
    forward<false>(x, gamma, beta, y, mean, inv_std, R, C, eps, (float *)0);
}

extern "C" __global__ void layernorm_forward_block_f32(
    const float *x, const float *__restrict__ gamma, const float *__restrict__ beta, float *y, float *mean,
    float *inv_std, int R, int C, float eps)
{
    __shared__ float box[32];
    forward<true>(x, gamma, beta, y, mean, inv_std, R, C, eps, box);
}

extern "C" __global__ void layernorm_backward_warp_f32(
    const float *dy, const float *__restrict__ x, const float *__restrict__ gamma, const float *__restrict__ mean,
    const float *__restrict__ inv_std, const float *add, float *dx, int R, int C)
{
    backward<false>(dy, x, gamma, mean, inv_std, add, dx, R, C, (float *)0);
}

extern "C" __global__ void layernorm_backward_block_f32(
    const float *dy, const float *__restrict__ x, const float *__restrict__ gamma, const float *__restrict__ mean,
    const float *__restrict__ inv_std, const float *add, float *dx, int R, int C)
{
    __shared__ float box[32];
    backward<true>(dy, x, gamma, mean, inv_std, add, dx, R, C, box);
}

extern "C" __global__ void __launch_bounds__(512) layernorm_sums_f32(
    const float *__restrict__ dy, const float *__restrict__ x, const float *__restrict__ mean,
    const float *__restrict__ inv_std, float *__restrict__ part, int R, int C, int chunk, int log_tx)
{
    __shared__ float box[COLUMN_BOX];
    const Columns at = columns<V>(log_tx);
    Pack<V> dgamma = fill<V>(0.0f), dbeta = dgamma;
    const int end = min(R, (int)(blockIdx.y + 1) * chunk);
    if (at.c < C)
#pragma unroll 4
        for (int r = blockIdx.y * chunk + at.ty; r < end; r += at.TY) {
            const Pack<V> d = load<V>(dy + (size_t)r * C + at.c), p = load<V>(x + (size_t)r * C + at.c);
            const float mu = mean[r], inv = inv_std[r];
#pragma unroll
            for (int k = 0; k < V; k++) {
                dbeta.v[k] += d.v[k];
                dgamma.v[k] = fmaf(d.v[k], (p.v[k] - mu) * inv, dgamma.v[k]);
            }
        }
    dgamma = column_sum(dgamma, at, box);
    dbeta = column_sum(dbeta, at, box);
    if (at.c < C && at.ty == 0) {
        float *to = part + (size_t)blockIdx.y * 2 * C + at.c;
        store(to, dgamma);
        store(to + C, dbeta);
    }
}
