/* columns: sums and moments down the columns of a matrix (R, C), one tile of columns a block.
 * Thread t of a one-dimensional block has column group tx = t mod TX and starts at row ty = t div TX, going on by TY.
 * It owns V neighbouring columns, c to c + V - 1; TX * V is at most 32, TX a power of two, blockDim a power of two from
 * 32 to 512. blockIdx.x is the tile of columns; blockIdx.y the range of rows, `chunk` long.
 */
#ifndef LITENET_COLUMNS_CUH
#define LITENET_COLUMNS_CUH

#include "common.cuh"

struct Columns { int tx, ty, TX, TY, c; }; /* c: first column of the thread, at least C where it has none */

template <int V> __device__ __forceinline__ Columns columns(int log_tx)
{
    const int TX = 1 << log_tx, tx = threadIdx.x & (TX - 1);
    const Columns at = {tx, (int)threadIdx.x >> log_tx, TX, (int)blockDim.x >> log_tx, ((int)blockIdx.x * TX + tx) * V};
    return at;
}

enum { COLUMN_BOX = 17 * 33 }; /* floats of shared memory a sum needs: a row for each warp and one for the result */

/* The sum of v over the rows of the block, for every thread of the column. Fixed order: a tree in each warp, then one
 * over the warps, where thread t has warp t mod W of column t div W. Calls may follow each other at once: the rows of
 * box were read before the second barrier, and the result is written after one that its last readers have passed. */
template <int V> __device__ __forceinline__ Pack<V> column_sum(Pack<V> v, const Columns &at, float *box)
{
    for (int o = at.TX; o < 32; o <<= 1)
#pragma unroll
        for (int k = 0; k < V; k++) v.v[k] += __shfl_xor_sync(FULL_WARP, v.v[k], o);
    const int W = blockDim.x >> 5, part = threadIdx.x & (W - 1), column = threadIdx.x >> __popc(W - 1);
    if ((threadIdx.x & 31) < at.TX)
#pragma unroll
        for (int k = 0; k < V; k++) box[(threadIdx.x >> 5) * 33 + at.tx * V + k] = v.v[k];
    __syncthreads();
    float sum = box[part * 33 + column];
    for (int o = W >> 1; o > 0; o >>= 1) sum += __shfl_xor_sync(FULL_WARP, sum, o);
    if (part == 0) box[16 * 33 + column] = sum;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < V; k++) v.v[k] = box[16 * 33 + at.tx * V + k];
    return v;
}

/* Count, mean and sum of squared distances from the mean, of V columns. Merging never subtracts large sums from each
 * other: neither a mean far from 0 nor one wild value costs digits. */
template <int V> struct Moments {
    float n;
    Pack<V> mean, m2;
};

template <int V> __device__ __forceinline__ Moments<V> no_moments()
{
    const Moments<V> none = {0.0f, fill<V>(0.0f), fill<V>(0.0f)};
    return none;
}

template <int V>
__device__ __forceinline__ void merge(Moments<V> &a, float n, const Pack<V> &mean, const Pack<V> &m2)
{
    if (n == 0.0f) return;
    const float total = a.n + n, share = n / total, both = a.n * share;
    a.n = total;
#pragma unroll
    for (int k = 0; k < V; k++) {
        const float d = mean.v[k] - a.mean.v[k];
        a.mean.v[k] = fmaf(d, share, a.mean.v[k]);
        a.m2.v[k] += fmaf(d * d, both, m2.v[k]);
    }
}

/* x[r, c..] - shift. */
template <int V> __device__ __forceinline__ Pack<V> shifted(const real *x, int r, int C, int c, const Pack<V> &shift)
{
    Pack<V> p = load<V>(x + (size_t)r * C + c);
#pragma unroll
    for (int k = 0; k < V; k++) p.v[k] -= shift.v[k];
    return p;
}

/* The moments of rows first, first + TY, ... below end, of the thread's columns, four rows at a time; of x - shift,
 * where shift is some value of the column: so the mean itself keeps its digits too. */
template <int V>
__device__ __forceinline__ Moments<V> row_moments(
    const real *x, const Pack<V> &shift, int first, int end, int C, const Columns &at)
{
    Moments<V> all = no_moments<V>();
    int r = first + at.ty;
    for (; r + 3 * at.TY < end; r += 4 * at.TY) {
        Pack<V> p[4], mean, m2;
#pragma unroll
        for (int j = 0; j < 4; j++) p[j] = shifted(x, r + j * at.TY, C, at.c, shift);
#pragma unroll
        for (int k = 0; k < V; k++) {
            mean.v[k] = 0.25f * ((p[0].v[k] + p[1].v[k]) + (p[2].v[k] + p[3].v[k]));
            m2.v[k] = 0.0f;
#pragma unroll
            for (int j = 0; j < 4; j++) m2.v[k] = fmaf(p[j].v[k] - mean.v[k], p[j].v[k] - mean.v[k], m2.v[k]);
        }
        merge(all, 4.0f, mean, m2);
    }
    for (; r < end; r += at.TY) merge(all, 1.0f, shifted(x, r, C, at.c, shift), fill<V>(0.0f));
    return all;
}

/* The moments of all threads of a column together, n values in all, for every thread of it. */
template <int V>
__device__ __forceinline__ Moments<V> column_moments(const Moments<V> &a, int n, const Columns &at, float *box)
{
    const float share = 1.0f / (float)n;
    Pack<V> mean, m2;
#pragma unroll
    for (int k = 0; k < V; k++) mean.v[k] = a.n * a.mean.v[k];
    mean = column_sum(mean, at, box);
#pragma unroll
    for (int k = 0; k < V; k++) {
        mean.v[k] *= share;
        const float d = a.mean.v[k] - mean.v[k];
        m2.v[k] = fmaf(a.n * d, d, a.m2.v[k]);
    }
    const Moments<V> all = {(float)n, mean, column_sum(m2, at, box)};
    return all;
}

#endif
