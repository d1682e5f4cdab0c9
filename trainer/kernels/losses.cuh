/* losses.cuh: what the kernels that end in a loss share: rows shared out to groups of lanes, cross entropy of one row,
 * and the sum over the batch.
 */
#pragma once
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
 * dz may be z. w: class weights, NULL: all 1. */
template <class S>
__device__ __forceinline__ RowLoss cross_entropy_row(const S *z, S *dz, int width, int t, const float *w,
                                                     float smoothing, float spread, float inverse, int lane, int size)
{
    Peak peak = {-infinity(), 0x7fffffff};
    float zt = 0.0f, total = 0.0f, ws = 0.0f, wz = 0.0f;
    for (int c = lane; c < width; c += size) {
        const float v = get(z + c);
        if (v > peak.top) peak = {v, c};
        if (c == t) zt = v;
    }
    peak = group_peak(peak, size);
    zt = group_sum(zt, size);
    for (int c = lane; c < width; c += size) {
        const float v = get(z + c) - peak.top, wc = w ? w[c] : 1.0f;
        total += expf(v);
        ws += wc;
        wz = fmaf(wc, v, wz);
    }
    total = group_sum(total, size);
    const float log_total = logf(total), own = (1.0f - smoothing) * (w && width ? w[t] : 1.0f);
    float each = -own * (zt - peak.top - log_total), q = own;
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

struct Batch { /* where the figures of a batch go. part, counter: unused by one block. row: of the history, or NULL */
    float *part, *loss;
    int *correct, *counter;
    float *row;
    const Scaling *scaling;
};

/* All kernels that end in a loss take these; history (history_rows, 4) or NULL. */
#define BATCH                                                                                                  \
    float *part, float *loss, int *correct, int *counter, const Scaling *scaling, const Step *step, float *history, \
        int history_rows
#define MAKE_BATCH                                                                                             \
    {part, loss, correct, counter, history ? history + 4 * history_row(step, history_rows) : nullptr, scaling}

/* The sums of all threads, times scale, to where they belong: by the last block, in the order of the blocks. True in
 * that block. boxes: 64 words of shared memory. */
__device__ __forceinline__ bool finish(float sum, int right, float scale, const Batch &out, float *boxes)
{
    int *int_boxes = reinterpret_cast<int *>(boxes + 32);
    sum = block_sum(sum, boxes) * scale;
    right = block_sum(right, int_boxes);
    if (gridDim.x > 1) {
        if (threadIdx.x == 0) {
            out.part[2 * blockIdx.x] = sum;
            out.part[2 * blockIdx.x + 1] = __int_as_float(right);
        }
        if (!last_block(out.counter, gridDim.x)) return false;
        sum = 0.0f;
        right = 0;
        for (int s = threadIdx.x; s < (int)gridDim.x; s += blockDim.x) {
            sum += out.part[2 * s];
            right += __float_as_int(out.part[2 * s + 1]);
        }
        sum = block_sum(sum, boxes);
        right = block_sum(right, int_boxes);
    }
    if (threadIdx.x == 0) {
        *out.loss = sum;
        *out.correct = right;
        if (out.row) {
            out.row[0] = sum;
            out.row[1] = (float)right;
            out.row[2] = out.scaling ? out.scaling->scale : 1.0f;
            out.row[3] = out.scaling ? (float)out.scaling->skipped : 0.0f;
        }
    }
    return true;
}
