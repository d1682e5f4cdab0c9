/* losses: the mean loss of a batch, its gradient and the number of right answers in one launch (formulas: losses.py).
 *   cross_entropy   l = -sum_c q_c log p_c, p = softmax(z), q_c = w_c ((1 - s) [c = t] + s / C), loss = sum l / W,
 *                   W = sum w_t, dz_c = (p_c sum q - q_c) / W; a batch with W = 0 has loss and gradient 0
 *                   mixed: [c = t] becomes share [c = t] + (1 - share) [c = u], share of `step`, u = t of row R - 1 - r
 *   logit_margin    l = max(0, m - z_t + max_(c != t) z_c), dz = -1/R at t and 1/R at the first such c where l > 0
 *   mse             mean (z - y)^2, dz = 2 (z - y) / (R C)
 *   bce             mean max(z, 0) - z y + log(1 + e^-|z|), dz = (sigmoid(z) - y) / (R C)
 * z, dz (R, C) real   t (R) int32; *_classes: y is the one-hot row of t, for C = 1 t itself; *_values: y (R, C) float32
 * w: class weights (C), NULL: all 1   scaling: dz is multiplied by its scale, NULL: by 1
 * history[step.cursor][block] = loss, correct, the scale, updates skipped before; (history_rows, gridDim.x, 4) float32.
 * The loss and the right answers are the sums over the blocks, which the host takes
 * A row is right where the first largest z is at t; for bce with C = 1 where [z > 0] = t; *_values: only bce, with
 * `ones` (the last axis has one element), else 0 are right
 * Launch    groups of 2^log_g lanes take a row each; block: a multiple of 32; grid: any
 * Aliasing  dz may be z: a lane writes only what it alone reads, after the whole row was read
 * Order     rows in ascending order in each lane, then block_sum
 */
#include "common.cuh"

struct Peak { float top; int at; }; /* the largest value and where it is first */

__device__ __forceinline__ Peak group_peak(Peak p, int size)
{
    for (int o = size >> 1; o > 0; o >>= 1) {
        const float top = __shfl_xor_sync(FULL_WARP, p.top, o);
        const int at = __shfl_xor_sync(FULL_WARP, p.at, o);
        if (top > p.top || (top == p.top && at < p.at)) p = {top, at};
    }
    return p;
}

__device__ __forceinline__ float group_sum(float v, int size)
{
    for (int o = size >> 1; o > 0; o >>= 1) v += __shfl_xor_sync(FULL_WARP, v, o);
    return v;
}

/* The rows of a warp, one for each group of lanes; past the end a group has no elements but takes part in the sums. */
struct Groups { int size, lane, warp_row, mine, all; }; /* lanes of a group; the warp's first row, mine from there */

__device__ __forceinline__ Groups groups_of(int log_g)
{
    const int thread = blockIdx.x * blockDim.x + threadIdx.x, size = 1 << log_g;
    const Groups groups = {size, (int)threadIdx.x & (size - 1), (thread & ~31) >> log_g,
                           ((int)threadIdx.x & 31) >> log_g, (int)(gridDim.x * blockDim.x) >> log_g};
    return groups;
}

struct RowLoss { float each; bool right; };

/* Cross entropy of one row z, by all lanes of a group; width: C, or 0 past the end. dz = (p sum q - q) * inverse, and
 * dz may be z. w: class weights, NULL: all 1. u: the second class, -1: none; share: of the first. */
__device__ __forceinline__ RowLoss cross_entropy_row(const real *z, real *dz, int width, int t, int u, float share,
                                                     const float *w, float smoothing, float spread, float inverse,
                                                     int lane, int size)
{
    Peak peak = {-infinity(), 0x7fffffff};
    float zt = 0.0f, zu = 0.0f, total = 0.0f, ws = 0.0f, wz = 0.0f;
    for (int c = lane; c < width; c += size) {
        const float v = get(z + c);
        if (v > peak.top) peak = {v, c};
        if (c == t) zt = v;
        if (c == u) zu = v;
    }
    peak = group_peak(peak, size);
    zt = group_sum(zt, size);
    if (u >= 0) zu = group_sum(zu, size);
    for (int c = lane; c < width; c += size) {
        const float v = get(z + c) - peak.top, wc = w ? w[c] : 1.0f;
        total += expf(v);
        ws += wc;
        wz = fmaf(wc, v, wz);
    }
    total = group_sum(total, size);
    const float log_total = logf(total), whole = (1.0f - smoothing) * (w && width ? w[t] : 1.0f);
    const float own = u < 0 ? whole : whole * share;
    const float second = u < 0 ? 0.0f : (1.0f - smoothing) * (w && width ? w[u] : 1.0f) * (1.0f - share);
    float each = -own * (zt - peak.top - log_total), q = own;
    if (u >= 0) {
        each -= second * (zu - peak.top - log_total);
        q += second;
    }
    if (smoothing > 0.0f) {
        ws = group_sum(ws, size);
        wz = group_sum(wz, size);
        each -= spread * (wz - log_total * ws);
        q = fmaf(spread, ws, q);
    }
    q /= total;
    for (int c = lane; c < width; c += size) {
        float d = expf(get(z + c) - peak.top) * q;
        if (c == t) d -= own;
        if (c == u) d -= second;
        if (smoothing > 0.0f) d -= (w ? w[c] : 1.0f) * spread;
        put(dz + c, d * inverse);
    }
    const RowLoss row = {each, peak.at == t};
    return row;
}

/* The sum of the batch's class weights, by one block. */
__device__ __forceinline__ float batch_weight(const int *target, const float *w, int R, float *boxes)
{
    if (!w) return (float)R;
    float W = 0.0f;
    for (int r = threadIdx.x; r < R; r += blockDim.x) W += w[target[r]];
    return block_sum(W, boxes);
}

/* All kernels take these. */
#define FIGURES const Scaling *scaling, const Step *step, float *history, int history_rows
#define PLACE (history + 4 * ((size_t)history_row(step, history_rows) * gridDim.x + blockIdx.x))

/* The sums of this block, the loss times scale, to its place in the history. boxes: 64 words of shared memory. */
__device__ __forceinline__ void finish(float sum, int right, float scale, const Scaling *scaling, float *place,
                                       float *boxes)
{
    sum = block_sum(sum, boxes) * scale;
    right = block_sum(right, reinterpret_cast<int *>(boxes + 32));
    if (threadIdx.x > 0) return;
    place[0] = sum;
    place[1] = (float)right;
    place[2] = scaling ? scaling->scale : 1.0f;
    place[3] = scaling ? (float)scaling->skipped : 0.0f;
}

__device__ __forceinline__ float scale_of(const Scaling *scaling) { return scaling ? scaling->scale : 1.0f; }

extern "C" __global__ void __launch_bounds__(1024) cross_entropy_f32(
    const real *z, const int *__restrict__ target, const float *__restrict__ w, real *dz, FIGURES, int R, int C,
    int log_g, float smoothing, int mixed)
{
    wait_for_last_launch();
    __shared__ float boxes[64];
    const float share = mixed ? step->share : 1.0f;
    const float W = batch_weight(target, w, R, boxes); /* every block sums the whole batch: no other launch is needed */
    const float inverse = W > 0.0f ? 1.0f / W : 0.0f, spread = smoothing / (float)C, scale = scale_of(scaling);
    const Groups rows = groups_of(log_g);
    float sum = 0.0f;
    int right = 0;
    for (int first = rows.warp_row; first < R; first += rows.all) {
        const int r = first + rows.mine, width = r < R ? C : 0, t = r < R ? target[r] : 0;
        const int u = mixed ? r < R ? target[R - 1 - r] : 0 : -1;
        const size_t at = (size_t)r * C;
        const RowLoss row = cross_entropy_row(z + at, dz + at, width, t, u, share, w, smoothing, spread,
                                              inverse * scale, rows.lane, rows.size);
        if (width && rows.lane == 0) {
            sum += row.each;
            right += row.right;
        }
    }
    finish(W > 0.0f ? sum : 0.0f, right, inverse, scaling, PLACE, boxes);
}

extern "C" __global__ void __launch_bounds__(1024) logit_margin_f32(
    const real *z, const int *__restrict__ target, real *dz, FIGURES, int R, int C, int log_g, float m)
{
    wait_for_last_launch();
    __shared__ float boxes[64];
    const Groups rows = groups_of(log_g);
    const float inverse = 1.0f / (float)R, scaled = inverse * scale_of(scaling);
    float sum = 0.0f;
    int right = 0;
    for (int first = rows.warp_row; first < R; first += rows.all) {
        const int r = first + rows.mine, width = r < R ? C : 0, t = r < R ? target[r] : 0;
        const size_t at = (size_t)r * C;
        Peak rival = {-infinity(), 0x7fffffff};
        float zt = 0.0f, bad = 0.0f;
        for (int c = rows.lane; c < width; c += rows.size) {
            const float v = get(z + at + c);
            if (v != v) bad = v;
            if (c == t) zt = v;
            else if (v > rival.top) rival = {v, c};
        }
        rival = group_peak(rival, rows.size);
        zt = group_sum(zt + bad, rows.size);
        const float lead = m - zt + rival.top, each = lead < 0.0f ? 0.0f : lead, share = each > 0.0f ? scaled : 0.0f;
        for (int c = rows.lane; c < width; c += rows.size)
            put(dz + at + c, c == t ? -share : c == rival.at ? share : 0.0f);
        if (width && rows.lane == 0) {
            sum += each;
            right += zt > rival.top || (zt == rival.top && t < rival.at);
        }
    }
    finish(sum, right, inverse, scaling, PLACE, boxes);
}

enum { MSE, BCE };

/* The loss of one value, not yet divided by their number; its gradient goes to d. */
template <int LOSS> __device__ __forceinline__ float of_value(float z, float y, float inverse, float &d)
{
    if (LOSS == MSE) {
        d = (z - y) * (2.0f * inverse);
        return (z - y) * (z - y);
    }
    d = (sigmoid(z) - y) * inverse;
    return (z < 0.0f ? 0.0f : z) - z * y + log1pf(expf(-fabsf(z)));
}

template <int LOSS>
__device__ __forceinline__ void of_classes(
    const real *z, const int *target, real *dz, float *place, const Scaling *scaling, int R, int C, int log_g,
    float *boxes)
{
    const Groups rows = groups_of(log_g);
    const float inverse = 1.0f / ((float)R * (float)C), scaled = inverse * scale_of(scaling);
    float sum = 0.0f;
    int right = 0;
    for (int first = rows.warp_row; first < R; first += rows.all) {
        const int r = first + rows.mine, width = r < R ? C : 0, t = r < R ? target[r] : 0;
        Peak peak = {-infinity(), 0x7fffffff};
        for (int c = rows.lane; c < width; c += rows.size) {
            const size_t i = (size_t)r * C + c;
            const float v = get(z + i);
            float d;
            if (v > peak.top) peak = {v, c};
            sum += of_value<LOSS>(v, C == 1 ? (float)t : c == t ? 1.0f : 0.0f, scaled, d);
            put(dz + i, d);
        }
        peak = group_peak(peak, rows.size);
        if (width && rows.lane == 0) right += C > 1 ? peak.at == t : LOSS == BCE && (peak.top > 0.0f) == t;
    }
    finish(sum, right, inverse, scaling, place, boxes);
}

template <int LOSS>
__device__ __forceinline__ void of_values(
    const real *z, const float *y, real *dz, float *place, const Scaling *scaling, int n, int ones, float *boxes)
{
    const float inverse = 1.0f / (float)n, scaled = inverse * scale_of(scaling);
    float sum = 0.0f;
    int right = 0;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        const float v = get(z + i), t = y[i];
        float d;
        sum += of_value<LOSS>(v, t, scaled, d);
        put(dz + i, d);
        right += LOSS == BCE && ones && (v > 0.0f ? 1.0f : 0.0f) == t;
    }
    finish(sum, right, inverse, scaling, place, boxes);
}

extern "C" __global__ void __launch_bounds__(1024) mse_classes_f32(
    const real *z, const int *target, real *dz, FIGURES, int R, int C, int log_g)
{
    wait_for_last_launch();
    __shared__ float boxes[64];
    of_classes<MSE>(z, target, dz, PLACE, scaling, R, C, log_g, boxes);
}

extern "C" __global__ void __launch_bounds__(1024) bce_classes_f32(
    const real *z, const int *target, real *dz, FIGURES, int R, int C, int log_g)
{
    wait_for_last_launch();
    __shared__ float boxes[64];
    of_classes<BCE>(z, target, dz, PLACE, scaling, R, C, log_g, boxes);
}

extern "C" __global__ void __launch_bounds__(1024) mse_values_f32(
    const real *z, const float *target, real *dz, FIGURES, int n, int ones)
{
    wait_for_last_launch();
    __shared__ float boxes[64];
    of_values<MSE>(z, target, dz, PLACE, scaling, n, ones, boxes);
}

extern "C" __global__ void __launch_bounds__(1024) bce_values_f32(
    const real *z, const float *target, real *dz, FIGURES, int n, int ones)
{
    wait_for_last_launch();
    __shared__ float boxes[64];
    of_values<BCE>(z, target, dz, PLACE, scaling, n, ones, boxes);
}
