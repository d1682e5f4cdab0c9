/* moments: count, mean and sum of squared distances from the mean of each channel of what a convolution stores, made
 * as it stores: batch normalisation behind it then does not read all of that once more to find them.
 *
 * Each block's pixels become a row of `moments`, which batchnorm_train_f32 puts together; where there would be more rows
 * than that takes in passing, the last block of each group of them puts the group together first. Several launches, one
 * after another, add to the same rows. Moments are merged about the mean of both (Chan, Golub and LeVeque), never as
 * sums of squares of which another is taken away, always in the order of the rows.
 *   moments   most rows of (origin[C], mean[C], m2[C]), then n[2][most], n 0 where there is no row; float. The mean is
 *             origin + mean, so that one far from 0 keeps its digits; m2: the sum of squared distances from it
 *   parts     (column groups, all, RowOf<W>) scratch    counters   (column groups, groups), 0 before and after; both
 *             only where rows are put together in groups
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
    m.mean = sum * (1.0f / fmaxf(m.n, 1.0f)); /* one division for all channels of a thread */
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

/* The sums of a and b over the threads of a channel, in their order, for each of them. box: 2 THREADS floats. */
template <int THREADS, int W> __device__ __forceinline__ void channel_sums(float &a, float &b, float *box)
{
    if (THREADS == W) return;
    __syncthreads();
    box[threadIdx.x] = a;
    box[THREADS + threadIdx.x] = b;
    __syncthreads();
    a = b = 0.0f;
#pragma unroll
    for (int t = 0; t < THREADS / W; t++) {
        a += box[t * W + (int)threadIdx.x % W];
        b += box[THREADS + t * W + (int)threadIdx.x % W];
    }
}

/* Rows put together: the moments of channel threadIdx.x % W, for each thread. Every THREADS/W-th row is a thread's. Row 0
 * has pixels. All threads take part; rows and box may have been written before. */
template <int THREADS, int W>
__device__ __forceinline__ Spread put_together(const float *rows, int count, float *box)
{
    enum { ROW = RowOf<W>::FLOATS, SHARE = THREADS / W };
    const int c = (int)threadIdx.x % W, first = (int)threadIdx.x / W;
    __syncthreads();
    Spread all = {0.0f, rows[c], 0.0f, 0.0f};
#pragma unroll 8
    for (int r = first; r < count; r += SHARE) {
        const float *row = rows + (size_t)r * ROW, k = row[3 * W];
        all.n += k;
        all.mean = fmaf(k, row[c] - all.origin + row[W + c], all.mean);
    }
    channel_sums<THREADS, W>(all.n, all.mean, box);
    all.mean /= all.n;
    float none = 0.0f;
#pragma unroll 8
    for (int r = first; r < count; r += SHARE) {
        const float *row = rows + (size_t)r * ROW, d = row[c] - all.origin + row[W + c] - all.mean;
        all.m2 += fmaf(row[3 * W] * d, d, row[2 * W + c]);
    }
    channel_sums<THREADS, W>(all.m2, none, box);
    return all;
}

/* What a kernel is told of its rows. */
struct RowPlan {
    float *moments, *parts; /* moments NULL: none are wanted */
    int *counters;
    int most;  /* rows that there can be */
    int all;   /* blocks of this launch down the rows */
    int group; /* of so many */
    int turn;  /* 2: launches before this one have left rows; 1: an odd number comes after it */
};
#define ROW_PLAN \
    float *moments, float *moment_parts, int *row_counters, int most_rows, int all_rows, int row_group, int row_turn
#define UNPACK_ROW_PLAN \
    const RowPlan row_plan = {moments, moment_parts, row_counters, most_rows, all_rows, row_group, row_turn};

/* mine: `count` rows in shared memory, which together are the pixels of this block. It is block r of the launch, of
 * column group g of channels W*g and on. box: 2 THREADS floats of shared memory. All threads take part. */
template <int THREADS, int W>
__device__ __forceinline__ void finish_moments(
    const float *mine, int count, const RowPlan &to, int r, int g, int C, float *box)
{
    enum { ROW = RowOf<W>::FLOATS };
    const int channel = (int)threadIdx.x, c = g * W + channel, rows = (to.all + to.group - 1) / to.group;
    /* n is read by every column group of the next launch, and written by one: it has two places, used in turn */
    float *n = to.moments + (size_t)to.most * 3 * C + (to.turn & 1) * to.most;
    const float *before = to.moments + (size_t)to.most * 3 * C + (~to.turn & 1) * to.most;
    Spread older = {0.0f, 0.0f, 0.0f, 0.0f};
    if (to.turn & 2 && channel < W && c < C) { /* then there are no groups */
        const float *at = to.moments + (size_t)r * 3 * C + c;
        older.n = before[r], older.origin = at[0], older.mean = at[C], older.m2 = at[2 * C];
    }
    Spread m = put_together<THREADS, W>(mine, count, box);
    if (to.group > 1) {
        float *first = to.parts + (size_t)g * to.all * ROW;
        if (channel < W) store_moments<W>(first + (size_t)r * ROW, channel, m);
        r /= to.group;
        const int start = r * to.group, size = min(to.group, to.all - start);
        if (!last_block(to.counters + g * rows + r, size)) return;
        m = put_together<THREADS, W>(first + (size_t)start * ROW, size, box);
    }
    merge(older, m);
    if (channel < W && c < C) {
        float *at = to.moments + (size_t)r * 3 * C + c;
        at[0] = older.origin;
        at[C] = older.mean;
        at[2 * C] = older.m2;
    }
    if (g > 0) return;
    if (channel == 0) n[r] = older.n;
    for (int k = r + rows * (1 + channel); k < to.most; k += rows * THREADS) n[k] = to.turn & 2 ? before[k] : 0.0f;
}

/* The same for a kernel that has no register to spare: inline, what it needs would be worked out before the sums. */
template <int THREADS, int W>
__device__ __noinline__ void finish_apart(const float *mine, int count, RowPlan to, int r, int g, int C, float *box)
{
    finish_moments<THREADS, W>(mine, count, to, r, g, C, box);
}
