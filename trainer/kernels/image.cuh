/* image.cuh: what the direct convolutions share: images in tiles, and the winner of a 2 x 2 window. */
#pragma once
#include "gemm.cuh"

/* Tile t of images of `down` x `across` tiles: tile (i, j) of image n. */
struct Spot {
    int n, i, j;
    __device__ __forceinline__ Spot(int t, int down, int across, Divisor by_image, Divisor by_row)
    {
        n = divide(t, by_image);
        const int r = t - n * (down * across);
        i = divide(r, by_row);
        j = r - i * across;
    }
};

/* The largest of a window's four sums in row order, and in `place` which it was: the first among equal ones. A NaN
 * wins, so that it is seen. */
__device__ __forceinline__ float largest(float s0, float s1, float s2, float s3, u32 &place)
{
    float best = s0;
    place = 0;
    if (s1 > best || s1 != s1) { best = s1; place = 1; }
    if (s2 > best || s2 != s2) { best = s2; place = 2; }
    if (s3 > best || s3 != s3) { best = s3; place = 3; }
    return best;
}

/* V places to V bytes; p: a multiple of V. */
template <int V> __device__ __forceinline__ void store_places(u8 *p, const u32 (&place)[V])
{
    if (V == 4) *reinterpret_cast<u32 *>(p) = place[0] | place[1 % V] << 8 | place[2 % V] << 16 | place[3 % V] << 24;
    else {
#pragma unroll
        for (int k = 0; k < V; k++) p[k] = (u8)place[k];
    }
}
