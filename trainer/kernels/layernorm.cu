/* layernorm: each row to mean 0 and variance 1, then scaled and shifted.
 *   forward    y[r,c] = (x[r,c] - mean[r]) * inv_std[r] * gamma[c] + beta[c]
 *   backward   xh = (x - mean) * inv_std, g = dy * gamma, dbeta = sum_r dy, dgamma = sum_r dy * xh,
 *              dx = add + inv_std * (g - mean_c(g) - xh * mean_c(g * xh))
 * x, y, dy, dx, add (R, C) real   gamma, beta (C)  mean, inv_std (R)  part (S, 2, C) float
 * add NULL: nothing is added; mean, inv_std NULL in forward: not kept; dx, dgamma, dbeta NULL: not asked for
 * Macros    LANES, PER (rows.cuh); VEC: 4 where C is a multiple of 4, else 1; WARPS, in backward, if it sums down the
 *           columns as well: the warps of a block
 * Launch    rows.cuh. With WARPS one block gives dgamma and dbeta, and of several block s gives part[s], which fold_f32
 *           (sum.cu) adds up. Without, sums comes before dx: columns.cuh, grid (tiles, S)
 * Aliasing  y may be x; dx may be dy or add: a thread reads and writes the same elements
 * Order     rows.cuh; down a column each team its rows in ascending order, then the teams of a warp as a tree, then the
 *           warps; sums as columns.cuh
 * Cost      each array once; without WARPS backward reads dy and x once more, and with LANES = 0 the later passes find
 *           the row in the cache
 */
#include "columns.cuh"
#include "rows.cuh"

enum { V = VEC };

#if LANES

/* Two passes over registers: the variance is summed around the mean, so a large mean costs no digits. */
extern "C" __global__ void __launch_bounds__(128) layernorm_forward_f32(
    const real *x, const float *__restrict__ gamma, const float *__restrict__ beta, real *y, float *mean,
    float *inv_std, int R, int C, float eps)
{
    wait_for_last_launch();
    const Place at = place();
    for (int base = at.base; base < R; base += at.step) {
        const int r = base + at.team;
        Row row = load_row(x + (size_t)r * C, at.lane, C, r < R, 0.0f);
        float sum = 0.0f, squares = 0.0f;
        EACH(j, k) sum += row.p[j].v[k];
        const float mu = team_sum(sum) / (float)C;
        EACH(j, k)
        {
            row.p[j].v[k] -= mu;
            if (column(j, at.lane) < C) squares = fmaf(row.p[j].v[k], row.p[j].v[k], squares);
        }
        const float inv = 1.0f / sqrtf(team_sum(squares) / (float)C + eps);
        const Row g = load_row(gamma, at.lane, C, true, 0.0f), b = load_row(beta, at.lane, C, true, 0.0f);
        EACH(j, k) row.p[j].v[k] = fmaf(row.p[j].v[k] * inv, g.p[j].v[k], b.p[j].v[k]);
        store_row(y + (size_t)r * C, at.lane, C, r < R, row);
        if (mean && at.lane == 0 && r < R) {
            mean[r] = mu;
            inv_std[r] = inv;
        }
    }
}

#ifdef WARPS

enum { WIDTH = LANES * PER * V, BOX = WARPS * 2 * WIDTH }; /* floats of shared memory for the sums of all warps */

/* Give what each thread has summed of its columns to out1 and out2, or of several blocks to the block's row of part. */
__device__ __forceinline__ void give_sums(
    Row dgamma, Row dbeta, float *box, float *part, float *out1, float *out2, int C, int lane, int accumulate)
{
    const int warp = threadIdx.x >> 5;
    EACH(j, k)
    {
        for (int o = LANES; o < 32; o <<= 1) {
            dgamma.p[j].v[k] += __shfl_xor_sync(FULL_WARP, dgamma.p[j].v[k], o);
            dbeta.p[j].v[k] += __shfl_xor_sync(FULL_WARP, dbeta.p[j].v[k], o);
        }
        if ((threadIdx.x & 31) < LANES) {
            box[2 * warp * WIDTH + column(j, lane) + k] = dgamma.p[j].v[k];
            box[(2 * warp + 1) * WIDTH + column(j, lane) + k] = dbeta.p[j].v[k];
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * C; i += blockDim.x) {
        const int c = i < C ? i : i - C + WIDTH;
        float total = 0.0f;
        for (int w = 0; w < WARPS; w++) total += box[2 * w * WIDTH + c];
        float *out = i < C ? out1 : out2;
        if (gridDim.x > 1) part[(size_t)blockIdx.x * 2 * C + i] = total;
        else if (out) out[i < C ? i : i - C] = total + (accumulate ? out[i < C ? i : i - C] : 0.0f);
    }
}

#else
enum { WARPS = 4, BOX = 1, WIDTH = 1 };
__device__ __forceinline__ void give_sums(Row, Row, float *, float *, float *, float *, int, int, int) {}
#endif

extern "C" __global__ void __launch_bounds__(32 * WARPS) layernorm_backward_f32(
    const real *dy, const real *__restrict__ x, const float *__restrict__ gamma, const float *__restrict__ mean,
    const float *__restrict__ inv_std, const real *add, real *dx, float *part, float *dgamma_out, float *dbeta_out,
    int R, int C, int accumulate)
{
    wait_for_last_launch();
    __shared__ float box[BOX];
    const Place at = place();
    Row dgamma, dbeta;
    EACH(j, k) dgamma.p[j].v[k] = dbeta.p[j].v[k] = 0.0f;
    for (int base = at.base; base < R; base += at.step) {
        const int r = base + at.team;
        const bool on = r < R;
        Row d = load_row(dy + (size_t)r * C, at.lane, C, on, 0.0f);
        Row xh = load_row(x + (size_t)r * C, at.lane, C, on, 0.0f);
        const Row weight = load_row(gamma, at.lane, C, true, 0.0f);
        const float mu = on ? mean[r] : 0.0f, inv = on ? inv_std[r] : 0.0f;
        float sum = 0.0f, dot = 0.0f;
        EACH(j, k)
        {
            xh.p[j].v[k] = (xh.p[j].v[k] - mu) * inv;
            dbeta.p[j].v[k] += d.p[j].v[k];
            dgamma.p[j].v[k] = fmaf(d.p[j].v[k], xh.p[j].v[k], dgamma.p[j].v[k]);
            d.p[j].v[k] *= weight.p[j].v[k];
            sum += d.p[j].v[k];
            dot = fmaf(d.p[j].v[k], xh.p[j].v[k], dot);
        }
        if (!dx) continue;
        sum = team_sum(sum) / (float)C;
        dot = team_sum(dot) / (float)C;
        EACH(j, k) d.p[j].v[k] = inv * (d.p[j].v[k] - sum - xh.p[j].v[k] * dot);
        if (add) {
            const Row older = load_row(add + (size_t)r * C, at.lane, C, on, 0.0f);
            EACH(j, k) d.p[j].v[k] += older.p[j].v[k];
        }
        store_row(dx + (size_t)r * C, at.lane, C, on, d);
    }
    give_sums(dgamma, dbeta, box, part, dgamma_out, dbeta_out, C, at.lane, accumulate);
}

#else

extern "C" __global__ void __launch_bounds__(512) layernorm_forward_f32(
    const real *x, const float *__restrict__ gamma, const float *__restrict__ beta, real *y, float *mean,
    float *inv_std, int R, int C, float eps)
{
    wait_for_last_launch();
    __shared__ float box[32];
    for (int r = blockIdx.x; r < R; r += gridDim.x) {
        const real *from = x + (size_t)r * C;
        real *to = y + (size_t)r * C;
        float sum = 0.0f, squares = 0.0f;
        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
            const Pack<V> p = load<V>(from + c);
#pragma unroll
            for (int k = 0; k < V; k++) sum += p.v[k];
        }
        const float mu = block_sum(sum, box) / (float)C;
        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
            const Pack<V> p = load<V>(from + c);
#pragma unroll
            for (int k = 0; k < V; k++) squares = fmaf(p.v[k] - mu, p.v[k] - mu, squares);
        }
        const float inv = 1.0f / sqrtf(block_sum(squares, box) / (float)C + eps);
        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
            Pack<V> p = load<V>(from + c);
            const Pack<V> g = load<V>(gamma + c), b = load<V>(beta + c);
#pragma unroll
            for (int k = 0; k < V; k++) p.v[k] = fmaf((p.v[k] - mu) * inv, g.v[k], b.v[k]);
            store(to + c, p);
        }
        if (mean && threadIdx.x == 0) {
            mean[r] = mu;
            inv_std[r] = inv;
        }
    }
}

extern "C" __global__ void __launch_bounds__(512) layernorm_backward_f32(
    const real *dy, const real *__restrict__ x, const float *__restrict__ gamma, const float *__restrict__ mean,
    const float *__restrict__ inv_std, const real *add, real *dx, float *, float *, float *, int R, int C, int)
{
    wait_for_last_launch();
    __shared__ float box[32];
    for (int r = blockIdx.x; r < R; r += gridDim.x) {
        const size_t row = (size_t)r * C;
        const float mu = mean[r], inv = inv_std[r];
        float sum = 0.0f, dot = 0.0f;
        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
            const Pack<V> d = load<V>(dy + row + c), p = load<V>(x + row + c), w = load<V>(gamma + c);
#pragma unroll
            for (int k = 0; k < V; k++) {
                const float g = d.v[k] * w.v[k];
                sum += g;
                dot = fmaf(g, (p.v[k] - mu) * inv, dot);
            }
        }
        sum = block_sum(sum, box) / (float)C;
        dot = block_sum(dot, box) / (float)C;
        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
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

#endif

extern "C" __global__ void __launch_bounds__(512) layernorm_sums_f32(
    const real *__restrict__ dy, const real *__restrict__ x, const float *__restrict__ mean,
    const float *__restrict__ inv_std, float *__restrict__ part, int R, int C, int chunk, int log_tx)
{
    wait_for_last_launch();
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
