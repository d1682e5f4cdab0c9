/* batchnorm: each channel to mean 0 and variance 1 over the batch, then scaled, shifted and activated.
 *   inference  y[r,c] = act(x[r,c] * s + (beta[c] - running_mean[c] * s)),  s = gamma[c] / sqrt(running_var[c] + eps)
 *   training   y[r,c] = act((x[r,c] - mean[c]) * inv_std[c] * gamma[c] + beta[c]), mean and biased variance over r;
 *              running = (1 - momentum) * running + momentum * (mean, unbiased variance)
 *   backward   dh = dy * act'(y), xh = (x - mean) * inv_std, dbeta = sum_r dh, dgamma = sum_r dh * xh,
 *              dx = add + gamma * inv_std * (dh - dbeta / R - xh * dgamma / R)
 * x, y, dy, dx, add (R, C)   the rest (C)   part (S, 2, C), in training one row (C)
 * more   float32; add NULL: nothing is added; dx NULL: not asked for
 * Macros    ACT; VEC: 4 where C is a multiple of 4, else 1
 * Launch    columns.cuh; grid (tiles, ranges of rows). S = 0: one launch with gridDim.y = 1, whose blocks take the
 *           moments of their columns themselves. Else moments (or sums) first, with S ranges, then the rest, in which
 *           every block folds the S partial results of its columns again, all in the same order
 * Aliasing  y may be x; dx may be dy or add
 * Order     columns.cuh; partial results in ascending order in each thread, then as there
 * Cost      training reads x twice and writes y once; backward reads dy, x and y twice and writes dx once
 */
#include "columns.cuh"

enum { V = VEC };

extern "C" __global__ void batchnorm_forward_f32(
    const float *x, const float *__restrict__ gamma, const float *__restrict__ beta,
    const float *__restrict__ running_mean, const float *__restrict__ running_var, float *y, int R, int C, int chunk,
    int log_tx, float eps, float alpha)
{
    const Columns at = columns<V>(log_tx);
    if (at.c >= C) return;
    Pack<V> scale, shift;
#pragma unroll
    for (int k = 0; k < V; k++) {
        scale.v[k] = gamma[at.c + k] / sqrtf(running_var[at.c + k] + eps);
        shift.v[k] = beta[at.c + k] - running_mean[at.c + k] * scale.v[k];
    }
    const int end = min(R, (int)(blockIdx.y + 1) * chunk);
    for (int r = blockIdx.y * chunk + at.ty; r < end; r += at.TY) {
        Pack<V> h = load<V>(x + (size_t)r * C + at.c);
#pragma unroll
        for (int k = 0; k < V; k++) h.v[k] = act_apply(ACT, fmaf(h.v[k], scale.v[k], shift.v[k]), alpha);
        store(y + (size_t)r * C + at.c, h);
    }
}

extern "C" __global__ void __launch_bounds__(512, 2) batchnorm_moments_f32(
    const float *__restrict__ x, float *__restrict__ part, int R, int C, int chunk, int log_tx)
{
    __shared__ float box[3 * COLUMN_BOX];
    const Columns at = columns<V>(log_tx);
    const int end = min(R, (int)(blockIdx.y + 1) * chunk);
    Moments<V> m = no_moments<V>();
    const Pack<V> shift = at.c < C ? load<V>(x + at.c) : fill<V>(0.0f); /* row 0 */
    if (at.c < C) m = row_moments<V>(x, shift, blockIdx.y * chunk, end, C, at);
    m = column_moments(m, at, box);
    if (at.c < C && at.ty == 0) {
        float *to = part + (size_t)blockIdx.y * 2 * C + at.c;
        store(to, m.mean);
        store(to + C, m.m2);
        if (blockIdx.y == 0) store(part + (size_t)gridDim.y * 2 * C + at.c, shift);
    }
}

extern "C" __global__ void __launch_bounds__(512, 2) batchnorm_train_f32(
    const float *x, const float *__restrict__ gamma, const float *__restrict__ beta, float *running_mean,
    float *running_var, const float *__restrict__ part, float *y, float *mean, float *inv_std, int R, int C, int chunk,
    int log_tx, int S, int part_chunk, float eps, float momentum, float alpha)
{
    __shared__ float box[3 * COLUMN_BOX];
    const Columns at = columns<V>(log_tx);
    Moments<V> m = no_moments<V>();
    Pack<V> origin = fill<V>(0.0f);
    if (at.c < C) {
        origin = load<V>(S == 0 ? x + at.c : part + (size_t)S * 2 * C + at.c);
        if (S == 0) m = row_moments<V>(x, origin, 0, R, C, at);
        for (int s = at.ty; s < S; s += at.TY) {
            const float *from = part + (size_t)s * 2 * C + at.c;
            merge(m, (float)min(part_chunk, R - s * part_chunk), load<V>(from), load<V>(from + C));
        }
    }
    m = column_moments(m, at, box);
    if (at.c >= C) return;
    Pack<V> inv, scale, shift;
#pragma unroll
    for (int k = 0; k < V; k++) {
        m.mean.v[k] += origin.v[k];
        inv.v[k] = 1.0f / sqrtf(m.m2.v[k] / (float)R + eps);
        scale.v[k] = inv.v[k] * gamma[at.c + k];
        shift.v[k] = beta[at.c + k];
    }
    if (blockIdx.y == 0 && at.ty == 0) {
#pragma unroll
        for (int k = 0; k < V; k++) {
            const int c = at.c + k;
            mean[c] = m.mean.v[k];
            inv_std[c] = inv.v[k];
            running_mean[c] = (1.0f - momentum) * running_mean[c] + momentum * m.mean.v[k];
            running_var[c] = (1.0f - momentum) * running_var[c] + momentum * (m.m2.v[k] / (float)max(R - 1, 1));
        }
    }
    const int end = min(R, (int)(blockIdx.y + 1) * chunk);
    for (int r = blockIdx.y * chunk + at.ty; r < end; r += at.TY) {
        Pack<V> h = load<V>(x + (size_t)r * C + at.c);
#pragma unroll
        for (int k = 0; k < V; k++)
            h.v[k] = act_apply(ACT, fmaf(h.v[k] - m.mean.v[k], scale.v[k], shift.v[k]), alpha);
        store(y + (size_t)r * C + at.c, h);
    }
}

/* dh of V values at i. */
__device__ __forceinline__ Pack<V> masked(const float *dy, const float *y, size_t i, float alpha)
{
    Pack<V> d = load<V>(dy + i);
    if (ACT != ACT_NONE) {
        const Pack<V> out = load<V>(y + i);
#pragma unroll
        for (int k = 0; k < V; k++) d.v[k] = act_mask(ACT, d.v[k], out.v[k], alpha);
    }
    return d;
}

/* sum_r dh and sum_r dh * xh over the thread's rows. */
__device__ __forceinline__ void row_sums(
    const float *dy, const float *y, const float *x, const Pack<V> &mean, const Pack<V> &inv, int first, int end, int C,
    const Columns &at, float alpha, Pack<V> &dbeta, Pack<V> &dgamma)
{
#pragma unroll 4
    for (int r = first + at.ty; r < end; r += at.TY) {
        const size_t i = (size_t)r * C + at.c;
        const Pack<V> dh = masked(dy, y, i, alpha), v = load<V>(x + i);
#pragma unroll
        for (int k = 0; k < V; k++) {
            dbeta.v[k] += dh.v[k];
            dgamma.v[k] = fmaf(dh.v[k], (v.v[k] - mean.v[k]) * inv.v[k], dgamma.v[k]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(512, 2) batchnorm_sums_f32(
    const float *__restrict__ dy, const float *__restrict__ y, const float *__restrict__ x,
    const float *__restrict__ mean, const float *__restrict__ inv_std, float *__restrict__ part, int R, int C,
    int chunk, int log_tx, float alpha)
{
    __shared__ float box[COLUMN_BOX];
    const Columns at = columns<V>(log_tx);
    Pack<V> dbeta = fill<V>(0.0f), dgamma = dbeta;
    if (at.c < C) {
        const int first = blockIdx.y * chunk;
        row_sums(dy, y, x, load<V>(mean + at.c), load<V>(inv_std + at.c), first, min(R, first + chunk), C, at, alpha,
                 dbeta, dgamma);
    }
    dbeta = column_sum(dbeta, at, box);
    dgamma = column_sum(dgamma, at, box);
    if (at.c < C && at.ty == 0) {
        float *to = part + (size_t)blockIdx.y * 2 * C + at.c;
        store(to, dbeta);
        store(to + C, dgamma);
    }
}

extern "C" __global__ void __launch_bounds__(512, 2) batchnorm_backward_f32(
    const float *dy, const float *y, const float *__restrict__ x, const float *__restrict__ gamma,
    const float *__restrict__ mean, const float *__restrict__ inv_std, const float *add, const float *__restrict__ part,
    float *dx, float *dgamma_out, float *dbeta_out, int R, int C, int chunk, int log_tx, int S, int accumulate,
    float alpha)
{
    __shared__ float box[COLUMN_BOX];
    const Columns at = columns<V>(log_tx);
    Pack<V> dbeta = fill<V>(0.0f), dgamma = dbeta, mu = dbeta, inv = dbeta;
    if (at.c < C) {
        mu = load<V>(mean + at.c);
        inv = load<V>(inv_std + at.c);
        if (S == 0) row_sums(dy, y, x, mu, inv, 0, R, C, at, alpha, dbeta, dgamma);
        for (int s = at.ty; s < S; s += at.TY) {
            const float *from = part + (size_t)s * 2 * C + at.c;
            const Pack<V> b = load<V>(from), g = load<V>(from + C);
#pragma unroll
            for (int k = 0; k < V; k++) {
                dbeta.v[k] += b.v[k];
                dgamma.v[k] += g.v[k];
            }
        }
    }
    dbeta = column_sum(dbeta, at, box);
    dgamma = column_sum(dgamma, at, box);
    if (at.c >= C) return;
    if (blockIdx.y == 0 && at.ty == 0) {
#pragma unroll
        for (int k = 0; k < V; k++) {
            if (dgamma_out) dgamma_out[at.c + k] = (accumulate ? dgamma_out[at.c + k] : 0.0f) + dgamma.v[k];
            if (dbeta_out) dbeta_out[at.c + k] = (accumulate ? dbeta_out[at.c + k] : 0.0f) + dbeta.v[k];
        }
    }
    if (!dx) return;
    Pack<V> scale;
#pragma unroll
    for (int k = 0; k < V; k++) {
        scale.v[k] = gamma[at.c + k] * inv.v[k];
        dbeta.v[k] /= (float)R;
        dgamma.v[k] /= (float)R;
    }
    const int end = min(R, (int)(blockIdx.y + 1) * chunk);
    for (int r = blockIdx.y * chunk + at.ty; r < end; r += at.TY) {
        const size_t i = (size_t)r * C + at.c;
        Pack<V> d = masked(dy, y, i, alpha);
        const Pack<V> v = load<V>(x + i), older = add ? load<V>(add + i) : fill<V>(0.0f);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const float xh = (v.v[k] - mu.v[k]) * inv.v[k];
            d.v[k] = fmaf(scale.v[k], d.v[k] - dbeta.v[k] - xh * dgamma.v[k], older.v[k]);
        }
        store(dx + i, d);
    }
}
