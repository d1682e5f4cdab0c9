/* moments: count, mean and sum of squared distances from the mean of each channel of what a convolution stores, made
 * as it stores: batch normalisation behind it then does not read all of that once more to find them.
 *
 * A block brings the moments of its pixels as a row: origin[W], mean[W], m2[W], n, for its W channels; the mean is
 * origin + mean, so that one far from 0 keeps its digits. Rows of blocks are put together by the last block of a group
 * of them, rows of groups by the last block of all; always in the order of the rows, whichever block is last. They are
 * merged about the mean of them all (Chan, Golub and LeVeque), never as sums of squares of which another is taken away.
 *   rows   (column groups, all + groups, ROW<W>) float, scratch    counters   (column groups, 1 + groups), 0 before and
 *          after (none where a launch is not the last)    out (2, C): mean, m2 of all N*Ho*Wo pixels
 */
#pragma once
#include "common.cuh"

template <int W> struct RowOf { enum { FLOATS = 3 * W + 4 }; };

/* Of n numbers: their mean is origin + mean, m2 the sum of squared distances from it. */
struct Spread { float n, origin, mean, m2; };

/* As it is when it has been stored and is read again: what follows normalises that. */
__device__ __forceinline__ float as_read(const float *, float v) { return v; }
__device__ __forceinline__ float as_read(const Half *, float v) { return HALF_TO_FLOAT(FLOAT_TO_HALF(v)); }
#define AS_READ(v) as_read((const real *)0, v)

/* Of value(i), i < COUNT, where there is one; the first is there if any is. */
template <int COUNT, class Has, class Value>
__device__ __forceinline__ Spread moments_of(Has has, Value value)
{
    Spread m = {0.0f, value(0), 0.0f, 0.0f};
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (has(i)) {
            m.n += 1.0f;
            sum += value(i) - m.origin;
        }
    m.mean = sum / fmaxf(m.n, 1.0f);
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        if (has(i)) {
            const float d = value(i) - m.origin - m.mean;
            m.m2 = fmaf(d, d, m.m2);
        }
    return m;
}

__device__ __forceinline__ void merge(Spread &a, const Spread &b)
{
    if (b.n == 0.0f) return;
    if (a.n == 0.0f) {
        a = b;
        return;
    }
    const float total = a.n + b.n, share = b.n / total, d = b.origin - a.origin + b.mean - a.mean;
    a.mean = fmaf(d, share, a.mean);
    a.m2 += fmaf(d * d, a.n * share, b.m2);
    a.n = total;
}

/* Channel c of a row. n is that of channel 0. */
template <int W> __device__ __forceinline__ void store_moments(float *row, int c, const Spread &m)
{
    row[c] = m.origin;
    row[W + c] = m.mean;
    row[2 * W + c] = m.m2;
    if (c == 0) row[3 * W] = m.n;
}

/* The sum of v over the threads of a channel, in their order, for each of them. box: THREADS floats. */
template <int THREADS, int W> __device__ __forceinline__ float channel_sum(float v, float *box)
{
    if (THREADS == W) return v;
    __syncthreads();
    box[threadIdx.x] = v;
    __syncthreads();
    v = 0.0f;
#pragma unroll
    for (int t = 0; t < THREADS / W; t++) v += box[t * W + (int)threadIdx.x % W];
    return v;
}

/* Rows put together: the moments of channel threadIdx.x % W, for each thread. Every THREADS/W-th row is a thread's. Row 0
 * has pixels. All threads take part; rows and box may have been written before. */
template <int THREADS, int W>
__device__ __forceinline__ Spread put_together(const float *rows, int count, float *box)
{
    enum { ROW = RowOf<W>::FLOATS, SHARE = THREADS / W };
    const int c = (int)threadIdx.x % W, first = (int)threadIdx.x / W;
    __syncthreads();
    const float origin = rows[c];
    float n = 0.0f, sum = 0.0f, m2 = 0.0f;
#pragma unroll 8
    for (int r = first; r < count; r += SHARE) {
        const float *row = rows + (size_t)r * ROW, k = row[3 * W];
        n += k;
        sum = fmaf(k, row[c] - origin + row[W + c], sum);
    }
    n = channel_sum<THREADS, W>(n, box);
    const float mean = channel_sum<THREADS, W>(sum, box) / n;
#pragma unroll 8
    for (int r = first; r < count; r += SHARE) {
        const float *row = rows + (size_t)r * ROW, d = row[c] - origin + row[W + c] - mean;
        m2 += fmaf(row[3 * W] * d, d, row[2 * W + c]);
    }
    const Spread all = {n, origin, mean, channel_sum<THREADS, W>(m2, box)};
    return all;
}

/* What a kernel is told of its rows. rows NULL: none are wanted. */
struct RowPlan {
    float *rows;
    int *counters;
    float *out; /* NULL: another launch is the last */
    int all;    /* rows of blocks */
    int before; /* of them, those of earlier launches; then there is one group */
    int group;  /* of so many */
};
#define ROW_PLAN \
    float *rows_of_moments, int *row_counters, float *moments, int all_rows, int rows_before, int row_group
#define UNPACK_ROW_PLAN \
    const RowPlan row_plan = {rows_of_moments, row_counters, moments, all_rows, rows_before, row_group};

/* mine: `count` rows in shared memory, which together are the pixels of this block. It is block r of the launch, of
 * column group g of channels W*g and on. box: THREADS floats of shared memory. All threads take part. */
template <int THREADS, int W>
__device__ __forceinline__ void finish_moments(
    const float *mine, int count, const RowPlan &to, int r, int g, int C, float *box)
{
    const Spread m = put_together<THREADS, W>(mine, count, box);
    enum { ROW = RowOf<W>::FLOATS };
    const int groups = (to.all + to.group - 1) / to.group, here = groups == 1 ? 0 : r / to.group;
    const int channel = (int)threadIdx.x;
    float *first = to.rows + (size_t)g * (to.all + groups) * ROW;
    if (channel < W) store_moments<W>(first + (size_t)(to.before + r) * ROW, channel, m);
    if (!to.out) return;
    int *counters = to.counters + g * (1 + groups);
    const int start = here * to.group, size = min(to.group, to.all - start);
    if (!last_block(counters + 1 + here, groups == 1 ? to.all - to.before : size)) return;
    Spread all = put_together<THREADS, W>(first + (size_t)start * ROW, size, box);
    if (groups > 1) {
        if (channel < W) store_moments<W>(first + (size_t)(to.all + here) * ROW, channel, all);
        if (!last_block(counters, groups)) return;
        all = put_together<THREADS, W>(first + (size_t)to.all * ROW, groups, box);
    }
    if (channel >= W || g * W + channel >= C) return;
    to.out[g * W + channel] = all.origin + all.mean;
    to.out[C + g * W + channel] = all.m2;
}

/* The same for a kernel that has no register to spare: inline, what it needs would be worked out before the sums. */
template <int THREADS, int W>
__device__ __noinline__ void finish_apart(const float *mine, int count, RowPlan to, int r, int g, int C, float *box)
{
    finish_moments<THREADS, W>(mine, count, to, r, g, C, box);
}
