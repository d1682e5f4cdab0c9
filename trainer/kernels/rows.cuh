/* rows: a matrix (R, C), each row of which belongs to a team of threads.
 *   LANES > 0   the team is LANES neighbouring lanes of a warp, a power of two. Lane l holds packs l, l + LANES, ... of
 *               the row, PER packs of V values in all, in registers. The block is whole warps; grid: any
 *   LANES = 0   the team is the block, whole warps; it goes over its row as often as it needs. Grid: any
 * Sums: each thread its own values in ascending order, then a fixed tree.
 */
#ifndef LITENET_ROWS_CUH
#define LITENET_ROWS_CUH

#include "common.cuh"

#if LANES

struct Row { Pack<VEC> p[PER]; };

/* Where a thread works: rows base + team, base + team + step, ...; base is the same for the whole warp, which keeps
 * together for the sums, also past the last row. */
struct Place { int lane, team, base, step; };

__device__ __forceinline__ Place place()
{
    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, warps = (gridDim.x * blockDim.x) >> 5;
    enum { TEAMS = 32 / LANES };
    const Place at = {(int)threadIdx.x % LANES, (int)threadIdx.x % 32 / LANES, warp * TEAMS, warps * TEAMS};
    return at;
}

/* First column of pack j. */
__device__ __forceinline__ int column(int j, int lane) { return (j * LANES + lane) * VEC; }

/* The lane's values of a row; `outside` where there are none, or no row. */
template <class T> __device__ __forceinline__ Row load_row(const T *row, int lane, int C, bool on, float outside)
{
    Row out;
#pragma unroll
    for (int j = 0; j < PER; j++)
        out.p[j] = on && column(j, lane) < C ? load<VEC>(row + column(j, lane)) : fill<VEC>(outside);
    return out;
}

__device__ __forceinline__ void store_row(real *row, int lane, int C, bool on, const Row &values)
{
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (on && column(j, lane) < C) store(row + column(j, lane), values.p[j]);
}

__device__ __forceinline__ float team_sum(float v)
{
#pragma unroll
    for (int o = LANES / 2; o > 0; o >>= 1) v += __shfl_xor_sync(FULL_WARP, v, o);
    return v;
}

__device__ __forceinline__ float team_max(float v)
{
#pragma unroll
    for (int o = LANES / 2; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, o));
    return v;
}

/* Each value v of the lane's row, with its pack j and place k in it. */
#define EACH(j, k)                      \
    _Pragma("unroll")                   \
    for (int j = 0; j < PER; j++)       \
        _Pragma("unroll")               \
        for (int k = 0; k < VEC; k++)

#endif

#endif
