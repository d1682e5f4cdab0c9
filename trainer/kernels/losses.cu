/* losses: the mean loss of a batch, its gradient and the number of right answers in one launch (formulas: losses.py).
 *   cross_entropy   l = -sum_c q_c log p_c, p = softmax(z), q_c = w_c ((1 - s) [c = t] + s / C), loss = sum l / W,
 *                   W = sum w_t, dz_c = (p_c sum q - q_c) / W; a batch with W = 0 has loss and gradient 0
 *   logit_margin    l = max(0, m - z_t + max_(c != t) z_c), dz = -1/R at t and 1/R at the first such c where l > 0
 *   mse             mean (z - y)^2, dz = 2 (z - y) / (R C)
 *   bce             mean max(z, 0) - z y + log(1 + e^-|z|), dz = (sigmoid(z) - y) / (R C)
 * z, dz (R, C) real   t (R) int32; *_classes: y is the one-hot row of t, for C = 1 t itself; *_values: y (R, C) float32
 * w: class weights (C), NULL: all 1   loss (1) float32   correct (1) int32   part (2 gridDim.x) words, float and int in
 * turn, and a counter: unused by one block   scaling: dz is multiplied by its scale, NULL: by 1
 * history[step.cursor] = loss, correct, the scale, updates skipped before; NULL: not wanted
 * A row is right where the first largest z is at t; for bce with C = 1 where [z > 0] = t; *_values: only bce, with
 * `ones` (the last axis has one element), else 0 are right
 * Launch    groups of 2^log_g lanes take a row each; block: a multiple of 32; grid: any
 * Aliasing  dz may be z: a lane writes only what it alone reads, after the whole row was read
 * Order     rows in ascending order in each lane, then block_sum, then the blocks (finish)
 */
#include "losses.cuh"

__device__ __forceinline__ float scale_of(const Scaling *scaling) { return scaling ? scaling->scale : 1.0f; }

extern "C" __global__ void __launch_bounds__(1024) cross_entropy_f32(
    const real *z, const int *__restrict__ target, const float *__restrict__ w, real *dz, BATCH, int R, int C,
    int log_g, float smoothing)
{
    __shared__ float boxes[64];
    const Batch out = MAKE_BATCH;
    const float W = batch_weight(target, w, R, boxes); /* every block sums the whole batch: no other launch is needed */
    const float inverse = W > 0.0f ? 1.0f / W : 0.0f, spread = smoothing / (float)C, scale = scale_of(scaling);
    const Groups rows = groups_of(log_g);
    float sum = 0.0f;
    int right = 0;
    for (int first = rows.warp_row; first < R; first += rows.all) {
        const int r = first + rows.mine, width = r < R ? C : 0, t = r < R ? target[r] : 0;
        const size_t at = (size_t)r * C;
        const RowLoss row = cross_entropy_row(z + at, dz + at, width, t, w, smoothing, spread, inverse * scale,
                                              rows.lane, rows.size);
        if (width && rows.lane == 0) {
            sum += row.each;
            right += row.right;
        }
    }
    finish(W > 0.0f ? sum : 0.0f, right, inverse, out, boxes);
}

extern "C" __global__ void __launch_bounds__(1024) logit_margin_f32(
    const real *z, const int *__restrict__ target, real *dz, BATCH, int R, int C, int log_g, float m)
{
    __shared__ float boxes[64];
    const Batch out = MAKE_BATCH;
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
    finish(sum, right, inverse, out, boxes);
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
    const real *z, const int *target, real *dz, const Batch &out, const Scaling *scaling, int R, int C, int log_g,
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
    finish(sum, right, inverse, out, boxes);
}

template <int LOSS>
__device__ __forceinline__ void of_values(
    const real *z, const float *y, real *dz, const Batch &out, const Scaling *scaling, int n, int ones, float *boxes)
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
    finish(sum, right, inverse, out, boxes);
}

extern "C" __global__ void __launch_bounds__(1024) mse_classes_f32(
    const real *z, const int *target, real *dz, BATCH, int R, int C, int log_g)
{
    __shared__ float boxes[64];
    const Batch out = MAKE_BATCH;
    of_classes<MSE>(z, target, dz, out, scaling, R, C, log_g, boxes);
}

extern "C" __global__ void __launch_bounds__(1024) bce_classes_f32(
    const real *z, const int *target, real *dz, BATCH, int R, int C, int log_g)
{
    __shared__ float boxes[64];
    const Batch out = MAKE_BATCH;
    of_classes<BCE>(z, target, dz, out, scaling, R, C, log_g, boxes);
}

extern "C" __global__ void __launch_bounds__(1024) mse_values_f32(
    const real *z, const float *target, real *dz, BATCH, int n, int ones)
{
    __shared__ float boxes[64];
    const Batch out = MAKE_BATCH;
    of_values<MSE>(z, target, dz, out, scaling, n, ones, boxes);
}

extern "C" __global__ void __launch_bounds__(1024) bce_values_f32(
    const real *z, const float *target, real *dz, BATCH, int n, int ones)
{
    __shared__ float boxes[64];
    const Batch out = MAKE_BATCH;
    of_values<BCE>(z, target, dz, out, scaling, n, ones, boxes);
}
