/* batchnorm: each channel to mean 0 and variance 1 over the batch, then scaled, shifted and activated. With ADD another
 * tensor is added before the activation: where a residual path joins.
 *   inference  h[r,c] = x[r,c] * s + (beta[c] - running_mean[c] * s),  s = gamma[c] / sqrt(running_var[c] + eps)
 *   training   h[r,c] = (x[r,c] - mean[c]) * (inv_std[c] * gamma[c]) + beta[c], mean and biased variance over r;
 *              running = (1 - momentum) * running + momentum * (mean, unbiased variance)
 *   again      h as training had it, bit for bit, from the mean and inv_std it kept
 *   in all     y = act(h), with ADD y = act(h + x2)
 *   backward   dh = dy * act'(y), dx2 = add2 + dh, xh = (x - mean) * inv_std, dbeta = sum_r dh, dgamma = sum_r dh * xh,
 *              dx = add + gamma * inv_std * (dh - dbeta / R - xh * dgamma / R)
 *              act' is told from y computed again from x; with ADD y is read
 * x, x2, y, dy, dx, dx2, add, add2 (R, C) real   the rest (C) float   part (S, 2, C), in training one row (C) more
 * add, add2 NULL: nothing is added; dx, dx2 NULL: not asked for; x2, y, add2, dx2 are not looked at without ADD
 * Macros    ACT; VEC: 4 where C is a multiple of 4, else 1; ADD: 1 or absent
 * Launch    columns.cuh; grid (tiles, ranges of rows). train with S = 0, and backward_whole: one launch with gridDim.y
 *           = 1, whose blocks take the moments (or sums) of their columns themselves. train with S < 0: part has the
 *           -S rows of moments.cuh, which the convolution before left, or `moments` with most = -S, where its kernels
 *           leave none; else most = 0. Else moments (or sums) first, with S ranges, then the rest, in which every block folds the S partial results of its columns again, all
 *           in the same order. With ADD, sums may write dx2 = dh already: what is left then is the backward pass of dh
 *           without ADD and ACT
 * Aliasing  y may be x or x2; dx may be dy or add, dx2 dy or add2, not each other
 * Order     columns.cuh; partial results in ascending order in each thread, then as there
 * Cost      training reads x twice and writes y once; backward reads dy and x twice and writes dx once; with ADD one
 *           more pass over x2 forward, and over y, dx2 and again dx2 (for the second time dy) backward
 */
#include "columns.cuh"

#ifndef ADD
#define ADD 0
#endif

enum { V = VEC };

/* What training does to V channels: h = (x - mean) * scale + shift. */
struct Line { Pack<V> mean, scale, shift; };

__device__ __forceinline__ Line line_of(
    const Pack<V> &mean, const Pack<V> &inv, const float *gamma, const float *beta, int c)
{
    Line line = {mean, load<V>(gamma + c), fill<V>(0.0f)};
    if (beta) line.shift = load<V>(beta + c); /* NULL in a backward pass that reads y */
#pragma unroll
    for (int k = 0; k < V; k++) line.scale.v[k] = inv.v[k] * line.scale.v[k];
    return line;
}

__device__ __forceinline__ Pack<V> on_line(const Line &line, Pack<V> x)
{
#pragma unroll
    for (int k = 0; k < V; k++) x.v[k] = fmaf(x.v[k] - line.mean.v[k], line.scale.v[k], line.shift.v[k]);
    return x;
}

/* What a thread reads at once: J of its rows, r, r + TY, ...; 0 for those past the end. A thread has its first rows
 * under way while the statistics are folded, and reads all it needs of some rows before it stores the first of them:
 * arrays may be the same, so the compiler would keep loads behind stores. */
template <int J> struct Rows { Pack<V> p[J]; };

template <int J> __device__ __forceinline__ Rows<J> read(const real *x, int r, int end, int C, const Columns &at)
{
    Rows<J> out;
#pragma unroll
    for (int j = 0; j < J; j++)
        out.p[j] = r + j * at.TY < end ? load<V>(x + (size_t)(r + j * at.TY) * C + at.c) : fill<V>(0.0f);
    return out;
}

/* The range of rows of the block, from the thread's first one; empty where the thread has no columns. */
struct Range { int r, end; };

__device__ __forceinline__ Range range(int R, int C, int chunk, const Columns &at)
{
    const Range rows = {(int)blockIdx.y * chunk + at.ty, at.c < C ? min(R, (int)(blockIdx.y + 1) * chunk) : 0};
    return rows;
}

struct Inputs { enum { J = ADD ? 2 : 4 }; Rows<J> x, x2; };

__device__ __forceinline__ Inputs inputs(const real *x, const real *x2, const Range &rows, int C, const Columns &at)
{
    Inputs in;
    in.x = read<Inputs::J>(x, rows.r, rows.end, C, at);
    if (ADD) in.x2 = read<Inputs::J>(x2, rows.r, rows.end, C, at);
    return in;
}

/* y of all rows of the range; `in`: what the thread has read of them already. */
template <class Normalise>
__device__ __forceinline__ void finish(
    Inputs in, const real *x, const real *x2, real *y, Range rows, int C, const Columns &at, float alpha,
    Normalise normalise)
{
    while (rows.r < rows.end) {
#pragma unroll
        for (int j = 0; j < Inputs::J; j++) {
            Pack<V> h = normalise(in.x.p[j]);
#pragma unroll
            for (int k = 0; k < V; k++) h.v[k] = act_apply(ACT, ADD ? h.v[k] + in.x2.p[j].v[k] : h.v[k], alpha);
            if (rows.r + j * at.TY < rows.end) store(y + (size_t)(rows.r + j * at.TY) * C + at.c, h);
        }
        rows.r += Inputs::J * at.TY;
        in = inputs(x, x2, rows, C, at);
    }
}

extern "C" __global__ void batchnorm_forward_f32(
    const real *x, const real *x2, const float *__restrict__ gamma, const float *__restrict__ beta,
    const float *__restrict__ running_mean, const float *__restrict__ running_var, real *y, int R, int C, int chunk,
    int log_tx, float eps, float alpha)
{
    wait_for_last_launch();
    const Columns at = columns<V>(log_tx);
    const Range rows = range(R, C, chunk, at);
    const Inputs in = inputs(x, x2, rows, C, at);
    if (at.c >= C) return;
    Pack<V> scale, shift;
#pragma unroll
    for (int k = 0; k < V; k++) {
        scale.v[k] = gamma[at.c + k] / sqrtf(running_var[at.c + k] + eps);
        shift.v[k] = beta[at.c + k] - running_mean[at.c + k] * scale.v[k];
    }
    finish(in, x, x2, y, rows, C, at, alpha, [&](Pack<V> h) {
#pragma unroll
        for (int k = 0; k < V; k++) h.v[k] = fmaf(h.v[k], scale.v[k], shift.v[k]);
        return h;
    });
}

extern "C" __global__ void batchnorm_again_f32(
    const real *x, const real *x2, const float *__restrict__ gamma, const float *__restrict__ beta,
    const float *__restrict__ mean, const float *__restrict__ inv_std, real *y, int R, int C, int chunk, int log_tx,
    float alpha)
{
    wait_for_last_launch();
    const Columns at = columns<V>(log_tx);
    const Range rows = range(R, C, chunk, at);
    const Inputs in = inputs(x, x2, rows, C, at);
    if (at.c >= C) return;
    const Line line = line_of(load<V>(mean + at.c), load<V>(inv_std + at.c), gamma, beta, at.c);
    finish(in, x, x2, y, rows, C, at, alpha, [&](const Pack<V> &v) { return on_line(line, v); });
}

extern "C" __global__ void __launch_bounds__(512, 2) batchnorm_moments_f32(
    const real *__restrict__ x, float *__restrict__ part, int R, int C, int chunk, int log_tx, int most)
{
    wait_for_last_launch();
    __shared__ float box[COLUMN_BOX];
    const Columns at = columns<V>(log_tx);
    const int end = min(R, (int)(blockIdx.y + 1) * chunk);
    Moments<V> m = no_moments<V>();
    const Pack<V> shift = at.c < C ? load<V>(x + at.c) : fill<V>(0.0f); /* row 0 */
    if (at.c < C) m = row_moments<V>(x, shift, blockIdx.y * chunk, end, C, at);
    m = column_moments(m, end - (int)blockIdx.y * chunk, at, box);
    if (at.c < C && at.ty == 0 && most > 0) {
        float *to = part + (size_t)blockIdx.y * 3 * C + at.c;
        store(to, shift);
        store(to + C, m.mean);
        store(to + 2 * C, m.m2);
    } else if (at.c < C && at.ty == 0) {
        float *to = part + (size_t)blockIdx.y * 2 * C + at.c;
        store(to, m.mean);
        store(to + C, m.m2);
        if (blockIdx.y == 0) store(part + (size_t)gridDim.y * 2 * C + at.c, shift);
    }
    if (blockIdx.x > 0 || threadIdx.x > 0) return;
    for (int s = blockIdx.y; s < most; s += gridDim.y)
        part[(size_t)most * 3 * C + s] = s == blockIdx.y ? (float)m.n : 0.0f;
}

extern "C" __global__ void __launch_bounds__(512, 2) batchnorm_train_f32(
    const real *x, const real *x2, const float *__restrict__ gamma, const float *__restrict__ beta, float *running_mean,
    float *running_var, const float *__restrict__ part, real *y, float *mean, float *inv_std, int R, int C, int chunk,
    int log_tx, int S, int part_chunk, float eps, float momentum, float alpha)
{
    wait_for_last_launch();
    __shared__ float box[COLUMN_BOX];
    const Columns at = columns<V>(log_tx);
    const Range rows = range(R, C, chunk, at);
    const Inputs in = inputs(x, x2, rows, C, at);
    Moments<V> m = no_moments<V>();
    Pack<V> origin = fill<V>(0.0f);
    if (at.c < C && S == 0) {
        origin = load<V>(x + at.c);
        m = row_moments<V>(x, origin, 0, R, C, at);
    } else if (at.c < C && S > 0) {
        origin = load<V>(part + (size_t)S * 2 * C + at.c);
        for (int s = at.ty; s < S; s += at.TY) {
            const float *from = part + (size_t)s * 2 * C + at.c;
            merge(m, (float)min(part_chunk, R - s * part_chunk), load<V>(from), load<V>(from + C));
        }
    } else if (at.c < C) { /* rows of moments.cuh */
        origin = load<V>(part + at.c);
#pragma unroll 2
        for (int s = at.ty; s < -S; s += at.TY) {
            const float *from = part + (size_t)s * 3 * C + at.c, n = part[(size_t)-S * 3 * C + s];
            const Pack<V> own = load<V>(from), m2 = load<V>(from + 2 * C);
            Pack<V> mean = load<V>(from + C);
#pragma unroll
            for (int k = 0; k < V; k++) mean.v[k] += own.v[k] - origin.v[k];
            merge(m, n, mean, m2);
        }
    }
    m = column_moments(m, R, at, box);
    if (at.c >= C) return;
    const float share = 1.0f / (float)R;
    Pack<V> inv;
#pragma unroll
    for (int k = 0; k < V; k++) {
        m.mean.v[k] += origin.v[k];
        inv.v[k] = 1.0f / sqrtf(fmaf(m.m2.v[k], share, eps));
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
    const Line line = line_of(m.mean, inv, gamma, beta, at.c);
    finish(in, x, x2, y, rows, C, at, alpha, [&](const Pack<V> &v) { return on_line(line, v); });
}

/* What a backward pass reads of some rows; d becomes dh. */
struct Outputs { enum { J = 2 }; Rows<J> d, x, y; };

__device__ __forceinline__ Outputs outputs(
    const real *dy, const real *y, const real *x, const Range &rows, int C, const Columns &at)
{
    Outputs out;
    out.d = read<Outputs::J>(dy, rows.r, rows.end, C, at);
    out.x = read<Outputs::J>(x, rows.r, rows.end, C, at);
    if (ADD && ACT != ACT_NONE) out.y = read<Outputs::J>(y, rows.r, rows.end, C, at);
    return out;
}

__device__ __forceinline__ void mask(Outputs &out, const Line &line, float alpha)
{
    if (ACT == ACT_NONE) return;
#pragma unroll
    for (int j = 0; j < Outputs::J; j++) {
        Pack<V> y = ADD ? out.y.p[j] : on_line(line, out.x.p[j]);
#pragma unroll
        for (int k = 0; k < V; k++) {
            if (!ADD) y.v[k] = act_apply(ACT, y.v[k], alpha);
            out.d.p[j].v[k] = act_mask(ACT, out.d.p[j].v[k], y.v[k], alpha);
        }
    }
}

/* sum_r dh and sum_r dh * (x - mean) */
struct Sums { Pack<V> dbeta, around; };

/* Over the thread's rows, the first of which are in `out`; dh goes to dx2 too, if given. */
__device__ __forceinline__ Sums row_sums(
    Outputs out, const real *dy, const real *y, const real *x, real *dx2, const Line &line, Range rows, int C,
    const Columns &at, float alpha)
{
    Sums sums = {fill<V>(0.0f), fill<V>(0.0f)};
    while (rows.r < rows.end) {
        mask(out, line, alpha);
#pragma unroll
        for (int j = 0; j < Outputs::J; j++) {
            const int r = rows.r + j * at.TY;
            if (ADD && dx2 && r < rows.end) store(dx2 + (size_t)r * C + at.c, out.d.p[j]);
#pragma unroll
            for (int k = 0; k < V; k++) {
                sums.dbeta.v[k] += out.d.p[j].v[k];
                sums.around.v[k] = fmaf(out.d.p[j].v[k], out.x.p[j].v[k] - line.mean.v[k], sums.around.v[k]);
            }
        }
        rows.r += Outputs::J * at.TY;
        out = outputs(dy, y, x, rows, C, at);
    }
    return sums;
}

extern "C" __global__ void __launch_bounds__(512, 2) batchnorm_sums_f32(
    const real *dy, const real *__restrict__ y, const real *__restrict__ x, const float *__restrict__ gamma,
    const float *__restrict__ beta, const float *__restrict__ mean, const float *__restrict__ inv_std,
    float *__restrict__ part, real *dx2, int R, int C, int chunk, int log_tx, float alpha)
{
    wait_for_last_launch();
    __shared__ float box[COLUMN_BOX];
    const Columns at = columns<V>(log_tx);
    const Range rows = range(R, C, chunk, at);
    const Outputs out = outputs(dy, y, x, rows, C, at);
    Sums sums = {fill<V>(0.0f), fill<V>(0.0f)};
    if (at.c < C) {
        const Line line = line_of(load<V>(mean + at.c), load<V>(inv_std + at.c), gamma, beta, at.c);
        sums = row_sums(out, dy, y, x, dx2, line, rows, C, at, alpha);
    }
    sums.dbeta = column_sum(sums.dbeta, at, box);
    sums.around = column_sum(sums.around, at, box);
    if (at.c < C && at.ty == 0) {
        float *to = part + (size_t)blockIdx.y * 2 * C + at.c;
        store(to, sums.dbeta);
        store(to + C, sums.around);
    }
}

/* Where the gradients go; NULL: not asked for. */
struct Targets {
    const real *add, *add2;
    real *dx, *dx2;
    float *dgamma, *dbeta;
};

/* dx and dx2 of all rows of the range, the first of which are in `out`, and what the columns' parameters get. */
__device__ __forceinline__ void gradients(
    Outputs out, const real *dy, const real *y, const real *x, const Targets &to, const Sums &sums, const Line &line,
    const Pack<V> &inv, Range rows, int R, int C, const Columns &at, int accumulate, float alpha)
{
    const float share = 1.0f / (float)R;
    Pack<V> mean, slope; /* the mean of dh, and how dx falls with x - mean */
#pragma unroll
    for (int k = 0; k < V; k++) {
        const int c = at.c + k;
        const float dgamma = sums.around.v[k] * inv.v[k];
        if (blockIdx.y == 0 && at.ty == 0) {
            if (to.dgamma) to.dgamma[c] = (accumulate ? to.dgamma[c] : 0.0f) + dgamma;
            if (to.dbeta) to.dbeta[c] = (accumulate ? to.dbeta[c] : 0.0f) + sums.dbeta.v[k];
        }
        slope.v[k] = inv.v[k] * dgamma * share;
        mean.v[k] = sums.dbeta.v[k] * share;
    }
    if (!to.dx && !(ADD && to.dx2)) return;
    while (rows.r < rows.end) {
        mask(out, line, alpha);
#pragma unroll
        for (int j = 0; j < Outputs::J; j++) {
            const int r = rows.r + j * at.TY;
            const size_t i = (size_t)r * C + at.c;
            if (r >= rows.end) continue;
            if (ADD && to.dx2) {
                Pack<V> d = to.add2 ? load<V>(to.add2 + i) : fill<V>(0.0f);
#pragma unroll
                for (int k = 0; k < V; k++) d.v[k] += out.d.p[j].v[k];
                store(to.dx2 + i, d);
            }
            if (!to.dx) continue;
            Pack<V> d = to.add ? load<V>(to.add + i) : fill<V>(0.0f);
#pragma unroll
            for (int k = 0; k < V; k++) {
                const float rest = out.d.p[j].v[k] - mean.v[k] - (out.x.p[j].v[k] - line.mean.v[k]) * slope.v[k];
                d.v[k] = fmaf(line.scale.v[k], rest, d.v[k]);
            }
            store(to.dx + i, d);
        }
        rows.r += Outputs::J * at.TY;
        out = outputs(dy, y, x, rows, C, at);
    }
}

extern "C" __global__ void __launch_bounds__(512, 2) batchnorm_backward_f32(
    const real *dy, const real *__restrict__ y, const real *__restrict__ x, const float *__restrict__ gamma,
    const float *__restrict__ beta, const float *__restrict__ mean, const float *__restrict__ inv_std, const real *add,
    const real *add2, const float *__restrict__ part, real *dx, real *dx2, float *dgamma, float *dbeta, int R, int C,
    int chunk, int log_tx, int S, int accumulate, float alpha)
{
    wait_for_last_launch();
    __shared__ float box[COLUMN_BOX];
    const Columns at = columns<V>(log_tx);
    const Range rows = range(R, C, chunk, at);
    const Outputs out = outputs(dy, y, x, rows, C, at);
    Sums sums = {fill<V>(0.0f), fill<V>(0.0f)};
    if (at.c < C)
        for (int s = at.ty; s < S; s += at.TY) {
            const float *from = part + (size_t)s * 2 * C + at.c;
            const Pack<V> b = load<V>(from), g = load<V>(from + C);
#pragma unroll
            for (int k = 0; k < V; k++) {
                sums.dbeta.v[k] += b.v[k];
                sums.around.v[k] += g.v[k];
            }
        }
    sums.dbeta = column_sum(sums.dbeta, at, box);
    sums.around = column_sum(sums.around, at, box);
    if (at.c >= C) return;
    const Pack<V> inv = load<V>(inv_std + at.c);
    const Line line = line_of(load<V>(mean + at.c), inv, gamma, beta, at.c);
    const Targets to = {add, add2, dx, dx2, dgamma, dbeta};
    gradients(out, dy, y, x, to, sums, line, inv, rows, R, C, at, accumulate, alpha);
}

extern "C" __global__ void __launch_bounds__(512) batchnorm_backward_whole_f32(
    const real *dy, const real *__restrict__ y, const real *__restrict__ x, const float *__restrict__ gamma,
    const float *__restrict__ beta, const float *__restrict__ mean, const float *__restrict__ inv_std, const real *add,
    const real *add2, real *dx, real *dx2, float *dgamma, float *dbeta, int R, int C, int log_tx, int accumulate,
    float alpha)
{
    wait_for_last_launch();
    __shared__ float box[COLUMN_BOX];
    const Columns at = columns<V>(log_tx);
    const Range rows = range(R, C, R, at);
    Pack<V> inv = fill<V>(0.0f);
    Line line = {inv, inv, inv};
    Sums sums = {inv, inv};
    if (at.c < C) {
        inv = load<V>(inv_std + at.c);
        line = line_of(load<V>(mean + at.c), inv, gamma, beta, at.c);
        sums = row_sums(outputs(dy, y, x, rows, C, at), dy, y, x, (real *)0, line, rows, C, at, alpha);
    }
    sums.dbeta = column_sum(sums.dbeta, at, box);
    sums.around = column_sum(sums.around, at, box);
    if (at.c >= C) return;
    const Targets to = {add, add2, dx, dx2, dgamma, dbeta};
    gradients(outputs(dy, y, x, rows, C, at), dy, y, x, to, sums, line, inv, rows, R, C, at, accumulate, alpha);
}
