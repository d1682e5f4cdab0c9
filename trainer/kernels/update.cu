/* update: all weights at once, or those of one tensor, and the norm of the gradients (formulas: optimizers.py; order:
 * scale, clip, norm, clip).
 *   g = clamp(gradients * grad_scale, clip_value) * min(1, clip_norm / norm), norm = sqrt(sum g^2) before the last
 *   sgd       g += wd w; w -= lr g
 *   momentum  g += wd w; v = mu v + g; w -= lr v, with nesterov lr (g + mu v)
 *   adam      g += wd w (decoupled: w *= 1 - lr wd); m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
 *             w -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
 * lr, t, grad_scale: of step. With scaling (not NULL) gradients are also divided by its scale, t does not count skipped
 * updates, and where a gradient is infinite or no number nothing is updated
 *   scaling, then: skipped += 1 and the scale halves (not below 1); after GROWTH good updates in a row it doubles (not
 *   above MOST)
 * weights, gradients, states (n)   float32, tensors at multiples of 16 bytes, zeros between them; gradients only read
 * bounds (count) int32: where decay begins and ends in turn, in units of 16 bytes; wd 0: not read
 * starts (groups) int32, factors (groups) float32: lr is multiplied by factors[k] from unit starts[k] on, starts[0] = 0;
 *           groups 1: starts is not read; groups 0: neither is
 * partials (history_rows, in_row) float64: sums of g^2, those of this update in the row of step.cursor (history_rows 1:
 *           in the first); their sum is the norm's square, which the host takes when it reads the history. S > 0:
 *           gradient_norm_f32 has written them already, as scaling and clip_norm (0: none) need it; S = 0: block b
 *           writes its own sum
 * counter   of gradient_norm_f32, with scaling
 * Launch    grid: the sums of this update; block: a multiple of 32; four values a thread, the tail one by one
 * Order     a thread sums its own values in ascending order, in float64, then block_sum
 * Cost      reads w, g and the states, writes w and the states: 12, 20 or 28 bytes a weight; the norm reads 4 more
 */
#include "common.cuh"

__device__ __forceinline__ float clamped(float g, float scale, float limit)
{
    g *= scale;
    return limit > 0.0f && g > limit ? limit : limit > 0.0f && g < -limit ? -limit : g; /* a NaN stays */
}

template <int V>
__device__ __forceinline__ Pack<V> gradient(const float *from, size_t i, float scale, float limit, double &squares)
{
    Pack<V> g = load<V>(from + i);
#pragma unroll
    for (int k = 0; k < V; k++) {
        g.v[k] = clamped(g.v[k], scale, limit);
        squares += (double)g.v[k] * (double)g.v[k];
    }
    return g;
}

/* The squares of V gradients. tell: an infinite one makes the sum no number, though it is clamped. */
template <int V>
__device__ __forceinline__ void add_squares(const float *from, size_t i, float scale, float limit, bool tell,
                                            double &squares)
{
    gradient<V>(from, i, scale, limit, squares);
    if (!tell) return;
    const Pack<V> g = load<V>(from + i);
#pragma unroll
    for (int k = 0; k < V; k++) squares += (double)(g.v[k] - g.v[k]);
}

__device__ __forceinline__ double sum_partials(const double *partials, int S, double *box)
{
    double sum = 0.0;
    for (int s = threadIdx.x; s < S; s += blockDim.x) sum += partials[s];
    return block_sum(sum, box);
}

/* What follows from the sum of squares, for this update and for the scale of the next step. */
__device__ __forceinline__ void rescale(Scaling *scaling, double squares)
{
    enum { GROWTH = 2000 };
    const float MOST = 16777216.0f;
    if (squares - squares != 0.0) { /* infinite, or no number */
        scaling->inverse = 0.0f;
        scaling->skipped++;
        scaling->good = 0;
        scaling->scale = fmaxf(0.5f * scaling->scale, 1.0f);
        return;
    }
    scaling->inverse = 1.0f / scaling->scale;
    if (++scaling->good == GROWTH) {
        scaling->good = 0;
        scaling->scale = fminf(2.0f * scaling->scale, MOST);
    }
}

extern "C" __global__ void __launch_bounds__(256) gradient_norm_f32(
    const float *__restrict__ gradients, const Step *__restrict__ step, Scaling *scaling, double *partials,
    int *counter, int n, int history_rows, int in_row, float clip_value)
{
    wait_for_last_launch();
    __shared__ double box[32];
    const u32 stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    const float scale = scaling ? step->grad_scale / scaling->scale : step->grad_scale;
    const bool tell = scaling != nullptr;
    partials += history_row(step, history_rows) * in_row;
    double squares = 0.0;
#pragma unroll 4
    for (u32 q = first; q < (u32)n / 4; q += stride)
        add_squares<4>(gradients, 4 * (size_t)q, scale, clip_value, tell, squares);
    for (u32 i = (u32)n / 4 * 4 + first; i < (u32)n; i += stride)
        add_squares<1>(gradients, i, scale, clip_value, tell, squares);
    squares = block_sum(squares, box);
    if (threadIdx.x == 0) partials[blockIdx.x] = squares;
    if (!scaling || !last_block(counter, gridDim.x)) return;
    squares = sum_partials(partials, gridDim.x, box);
    if (threadIdx.x == 0) rescale(scaling, squares);
}

/* Whether unit q decays: an odd number of bounds are at most q. */
__device__ __forceinline__ bool decays(const int *bounds, int count, int q)
{
    int low = 0;
    for (int high = count; low < high;) {
        const int middle = (low + high) >> 1;
        if (bounds[middle] <= q) low = middle + 1;
        else high = middle;
    }
    return low & 1;
}

/* What the learning rate of unit q is multiplied by: the factor of the last group that starts at or before it. */
__device__ __forceinline__ float factor_at(const int *starts, const float *factors, int groups, int q)
{
    int low = 0;
    for (int high = groups - 1; low < high;) {
        const int middle = (low + high + 1) >> 1;
        if (starts[middle] <= q) low = middle;
        else high = middle - 1;
    }
    return factors[low];
}

/* apply(r, i, g, wd, f) updates weights i to i + V - 1 by rule r at f times its rate, with their gradients g. */

struct Sgd {
    float *weights;
    float lr;
};

template <int V> __device__ __forceinline__ void apply(const Sgd &r, size_t i, Pack<V> g, float wd, float f)
{
    const float lr = f * r.lr;
    Pack<V> w = load<V>(r.weights + i);
#pragma unroll
    for (int k = 0; k < V; k++) w.v[k] -= lr * fmaf(wd, w.v[k], g.v[k]);
    store(r.weights + i, w);
}

struct Momentum {
    float *weights, *velocity;
    float lr, mu;
    int nesterov;
};

template <int V> __device__ __forceinline__ void apply(const Momentum &r, size_t i, Pack<V> g, float wd, float f)
{
    const float lr = f * r.lr;
    Pack<V> w = load<V>(r.weights + i), v = load<V>(r.velocity + i);
#pragma unroll
    for (int k = 0; k < V; k++) {
        const float d = fmaf(wd, w.v[k], g.v[k]);
        v.v[k] = fmaf(r.mu, v.v[k], d);
        w.v[k] -= lr * (r.nesterov ? fmaf(r.mu, v.v[k], d) : v.v[k]);
    }
    store(r.weights + i, w);
    store(r.velocity + i, v);
}

struct Adam {
    float *weights, *mean, *square;
    float lr, b1, b1_rest, b2, b2_rest, eps, rate, root; /* rate = lr / (1 - b1^t), root = 1 / sqrt(1 - b2^t) */
    int decoupled;
};

template <int V> __device__ __forceinline__ void apply(const Adam &r, size_t i, Pack<V> g, float wd, float f)
{
    const float lr = f * r.lr, rate = f * r.rate;
    Pack<V> w = load<V>(r.weights + i), m = load<V>(r.mean + i), v = load<V>(r.square + i);
#pragma unroll
    for (int k = 0; k < V; k++) {
        float d = g.v[k];
        if (r.decoupled) w.v[k] *= 1.0f - lr * wd;
        else d = fmaf(wd, w.v[k], d);
        m.v[k] = fmaf(r.b1, m.v[k], r.b1_rest * d);
        v.v[k] = fmaf(r.b2, v.v[k], r.b2_rest * d * d);
        w.v[k] -= rate * (m.v[k] / fmaf(sqrtf(v.v[k]), r.root, r.eps));
    }
    store(r.weights + i, w);
    store(r.mean + i, m);
    store(r.square + i, v);
}

/* What all rules share. */
#define SHARED                                                                                                    \
    const float *gradients, const Step *step, const Scaling *scaling, const int *bounds, const int *starts,       \
        const float *factors, double *partials, int n, int count, int groups, int S, int history_rows, int in_row,\
        float wd, float clip_value, float clip_norm
#define MAKE_JOB                                                                                                  \
    {gradients, bounds, starts, factors, partials + history_row(step, history_rows) * in_row, n, count, groups, S,\
     scaling ? step->grad_scale * scaling->inverse : step->grad_scale, wd, clip_value, clip_norm}

struct Job {
    const float *gradients;
    const int *bounds, *starts;
    const float *factors;
    double *partials;
    int n, count, groups, S;
    float scale, wd, clip_value, clip_norm;
};

__device__ __forceinline__ float rate_of(const Job &j, int q)
{
    return j.groups ? factor_at(j.starts, j.factors, j.groups, q) : 1.0f;
}

template <class RULE> __device__ __forceinline__ void update(const RULE &rule, const Job &j, double *box)
{
    if (j.scale == 0.0f) return; /* the gradients overflowed */
    float factor = 1.0f;
    if (j.S > 0 && j.clip_norm > 0.0f) {
        const double norm = sqrt(sum_partials(j.partials, j.S, box));
        if (norm > (double)j.clip_norm) factor = (float)((double)j.clip_norm / norm);
    }
    const u32 stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x, n = j.n;
    double squares = 0.0;
    for (u32 q = first; q < n / 4; q += stride) {
        Pack<4> g = gradient<4>(j.gradients, 4 * (size_t)q, j.scale, j.clip_value, squares);
#pragma unroll
        for (int k = 0; k < 4; k++) g.v[k] *= factor;
        apply(rule, 4 * (size_t)q, g, j.wd != 0.0f && decays(j.bounds, j.count, q) ? j.wd : 0.0f, rate_of(j, q));
    }
    for (u32 i = n / 4 * 4 + first; i < n; i += stride) {
        Pack<1> g = gradient<1>(j.gradients, i, j.scale, j.clip_value, squares);
        g.v[0] *= factor;
        apply(rule, (size_t)i, g, j.wd != 0.0f && decays(j.bounds, j.count, i / 4) ? j.wd : 0.0f, rate_of(j, i / 4));
    }
    if (j.S > 0) return;
    squares = block_sum(squares, box);
    if (threadIdx.x == 0) j.partials[blockIdx.x] = squares;
}

extern "C" __global__ void __launch_bounds__(256) update_sgd_f32(float *weights, SHARED)
{
    wait_for_last_launch();
    __shared__ double box[32];
    const Job job = MAKE_JOB;
    const Sgd rule = {weights, step->lr};
    update(rule, job, box);
}

extern "C" __global__ void __launch_bounds__(256) update_momentum_f32(
    float *weights, float *velocity, SHARED, float mu, int nesterov)
{
    wait_for_last_launch();
    __shared__ double box[32];
    const Job job = MAKE_JOB;
    const Momentum rule = {weights, velocity, step->lr, mu, nesterov};
    update(rule, job, box);
}

/* log_b1, log_b2: natural logarithms. 1 - b^t = -expm1(t log b) loses no digits while b^t is near 1. */
extern "C" __global__ void __launch_bounds__(256) update_adam_f32(
    float *weights, float *m, float *v, SHARED, float b1, float b1_rest, float log_b1, float b2, float b2_rest,
    float log_b2, float eps, int decoupled)
{
    wait_for_last_launch();
    __shared__ double box[32];
    const Job job = MAKE_JOB;
    const float t = (float)(step->t - (scaling ? scaling->skipped : 0)), lr = step->lr;
    const float rate = lr / -expm1f(t * log_b1), root = 1.0f / sqrtf(-expm1f(t * log_b2));
    const Adam rule = {weights, m, v, lr, b1, b1_rest, b2, b2_rest, eps, rate, root, decoupled};
    update(rule, job, box);
}
