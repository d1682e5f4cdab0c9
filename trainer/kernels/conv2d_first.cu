/* conv2d_first: forward and weight gradient of a convolution over few channels (the first layer: C = 1 or 3), stride
 * and dilation 1, with the 2 x 2 max pool behind it where POOL. The sums are so short (9 or 27 terms) that the image's
 * way to the multipliers decides: it passes through shared memory, with a border of zeros, and weights (forward) or
 * their sums (wgrad) stay in shared memory or registers.
 *   forward   s[n,i,j,o] = b[o] + sum_uvc x[n, i+u-top, j+v-left, c] w[o,u,v,c]     y = act(s)
 *             POOL: y[n,i,j,o] = act(max of s over [2i..2i+1, 2j..2j+1]), index: which of the four (NULL: not kept)
 *   wgrad     dw[o,u,v,c] = sum_nij g[n,i,j,o] x[n, i+u-top, j+v-left, c]   db[o] = sum_nij g   with g = dy * act'(y)
 *             POOL: x[n, 2i+a+u-top, 2j+b+v-left, c] for the winner (a, b): a quarter of the multiplications
 * x (N,H,W,C)  y, dy, index (N,Hy,Wy,O)   stored as REAL, index one byte   w, dw (O,KH,KW,C)   b, db (O)   float32
 *
 * Macros    FC, FKH, FKW   C, KH, KW       ACT   number of the activation        POOL   1: the fused operator
 *           CONV_FORWARD   ACROSS: a tile is 8*ACROSS x 32/ACROSS sums (1, 2, 4 or 8)
 *           MOMENTS        1: forward leaves the moments of y (moments.cuh), 32 channels are a column group; no POOL
 *           CONV_WGRAD     TW: a tile is TW x 64/TW of y, TW a multiple of 4 (POOL: TW x 32/TW, any TW)
 * Launch    forward   grid (at most a block for each tile, ceil(O / 32)), block 256: a thread makes 8 sums x 4 channels
 *                     of a tile; a block takes every gridDim.x-th tile
 *           wgrad     grid (parts, ceil(O / 32)), block 256: a lane owns an output channel; block z sums every parts-th
 *                     tile into part[z][O*K + O] (without bias O*K); conv2d_sum_f32 adds the parts
 * Edges     any N, H, W, O        Aliasing  none overlap        Order  fixed for a given number of parts
 * Cost      forward 2 K operations a sum; wgrad 2 K operations a value of y: POOL fetches x once for each, else once
 *           for four of them
 */
#include "image.cuh"
#include "moments.cuh"

#ifndef MOMENTS
#define MOMENTS 0
#endif

/* by_image, by_row: what divides by down*across and across, the tiles of an image */
#define SIZES                                                                                              \
    int N, int H, int W, int O, int Hy, int Wy, int top, int left, unsigned image_mul, int image_shift,    \
        unsigned row_mul, int row_shift
#define SPOT(t) Spot(t, down, across, Divisor{image_mul, image_shift}, Divisor{row_mul, row_shift})

enum { K = FKH * FKW * FC, S = POOL ? 2 : 1 /* sums along a side of a value of y */ };

/* The image that HIGH x WIDE sums see, zeros outside: into registers, from there into shared memory. */
template <int HIGH, int WIDE> struct Image {
    enum {
        ROWS = HIGH + FKH - 1,
        PITCH = ((WIDE + FKW - 1) * FC + 7) / 4 * 4, /* floats of a row; readers take whole float4 */
        FLOATS = ROWS * PITCH + 4, LOADS = (ROWS * PITCH + 255) / 256
    };
    float v[LOADS];
    /* i, j: the first sum */
    __device__ __forceinline__ void bring(const real *x, int n, int i, int j, int H, int W, int top, int left)
    {
        x += (size_t)n * H * W * FC;
#pragma unroll
        for (int q = 0; q < LOADS; q++) {
            const u32 e = threadIdx.x + q * 256, r = e / PITCH;
            const int row = i - top + (int)r, at = (j - left) * FC + (int)(e - r * PITCH);
            const bool inside = r < ROWS && (u32)row < (u32)H && (u32)at < (u32)(W * FC);
            v[q] = inside ? get(x + (row * W * FC + at)) : 0.0f;
        }
    }
    __device__ __forceinline__ void put_into(float *tile) const
    {
#pragma unroll
        for (int q = 0; q < LOADS; q++) {
            const u32 e = threadIdx.x + q * 256;
            if (e < ROWS * PITCH) tile[e] = v[q];
        }
    }
};

/* COUNT floats from a multiple of 4 in shared memory (and up to 3 after them, unused). */
template <int COUNT> __device__ __forceinline__ void segment(float (&s)[(COUNT + 3) / 4 * 4], const float *tile)
{
#pragma unroll
    for (int q = 0; q < (COUNT + 3) / 4; q++) {
        const Pack<4> p = load<4>(tile + 4 * q);
#pragma unroll
        for (int e = 0; e < 4; e++) s[4 * q + e] = p.v[e];
    }
}

#ifdef CONV_FORWARD
extern "C" __global__ void __launch_bounds__(256, 2) conv2d_first_forward_f32(
    const real *__restrict__ x, const float *__restrict__ w, const float *__restrict__ b, real *__restrict__ y,
    u8 *__restrict__ index, SIZES, float alpha, ROW_PLAN)
{
    wait_for_last_launch();
    enum {
        WIDE = 8 * ACROSS, HIGH = 32 / ACROSS, PX = 8 / S,      /* a thread's sums: S rows of PX */
        SPAN = (PX + FKW - 1) * FC, GIVES = PX / S              /* values of y */
    };
    typedef Image<HIGH, WIDE> Tile;
    __shared__ __align__(16) float tile[Tile::FLOATS];
    __shared__ __align__(16) float ws[K + 1][32];
    const int o0 = (int)blockIdx.y * 32, o4 = (int)threadIdx.x % 8 * 4, group = (int)threadIdx.x / 8;
    const int i = group / (WIDE / PX) * S, j = group % (WIDE / PX) * PX;
    const int across = (S * Wy + WIDE - 1) / WIDE, down = (S * Hy + HIGH - 1) / HIGH, tiles = N * down * across;
    for (int e = (int)threadIdx.x; e < (K + 1) * 32; e += 256) {
        const int k = e / 32, o = o0 + e % 32;
        ws[k][e % 32] = o >= O ? 0.0f : k < K ? w[(size_t)o * K + k] : b ? b[o] : 0.0f;
    }
#if MOMENTS
    Spread all[4];
#pragma unroll
    for (int c = 0; c < 4; c++) all[c] = {0.0f, 0.0f, 0.0f, 0.0f};
#endif
    Tile next;
    Spot at = SPOT((int)blockIdx.x);
    next.bring(x, at.n, at.i * HIGH, at.j * WIDE, H, W, top, left);
    for (int t = (int)blockIdx.x; t < tiles; t += (int)gridDim.x) {
        __syncthreads(); /* the tile before is used up */
        next.put_into(tile);
        __syncthreads();
        const int yi = at.i * (HIGH / S) + i / S, yj = at.j * (WIDE / S) + j / S; /* this thread's first value of y */
        const size_t first = ((size_t)at.n * Hy + yi) * Wy + yj;
        if (t + (int)gridDim.x < tiles) {
            at = SPOT(t + (int)gridDim.x);
            next.bring(x, at.n, at.i * HIGH, at.j * WIDE, H, W, top, left);
        }
        float acc[S][PX][4], s[S][(SPAN + 3) / 4 * 4];
        const Pack<4> bias = load<4>(&ws[K][o4]);
#pragma unroll
        for (int e = 0; e < 32; e++) acc[e / (4 * PX)][e / 4 % PX][e % 4] = bias.v[e % 4];
        if (S == 2) segment<SPAN>(s[0], tile + i * Tile::PITCH + j * FC);
#pragma unroll
        for (int u = 0; u < FKH; u++) {
            segment<SPAN>(s[(u + S - 1) % S], tile + (i + u + S - 1) * Tile::PITCH + j * FC);
#pragma unroll
            for (int k = 0; k < FKW * FC; k++) {
                const Pack<4> wk = load<4>(&ws[u * FKW * FC + k][o4]);
#pragma unroll
                for (int e = 0; e < 32; e++) {
                    float &a = acc[e / (4 * PX)][e / 4 % PX][e % 4];
                    a = fmaf(s[(u + e / (4 * PX)) % S][e / 4 % PX * FC + k], wk.v[e % 4], a);
                }
            }
        }
        if (yi >= Hy || o0 + o4 >= O) continue;
#pragma unroll
        for (int p = 0; p < GIVES; p++) {
            if (yj + p >= Wy) continue;
            const size_t to = (first + p) * O + o0 + o4;
            Pack<4> r;
            u32 place[4];
#pragma unroll
            for (int c = 0; c < 4; c++) {
#if POOL
                const int q = 2 * p;
                r.v[c] = largest(acc[0][q][c], acc[0][q + 1][c], acc[1][q][c], acc[1][q + 1][c], place[c]);
#else
                r.v[c] = acc[0][p][c];
#endif
                r.v[c] = act_apply(ACT, r.v[c], alpha);
            }
            if (O % 4 == 0) {
                store(y + to, r);
                if (POOL && index) store_places<4>(index + to, place);
            } else {
#pragma unroll
                for (int c = 0; c < 4; c++)
                    if (o0 + o4 + c < O) {
                        put(y + to + c, r.v[c]);
                        if (POOL && index) index[to + c] = (u8)place[c];
                    }
            }
        }
#if MOMENTS
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const Spread here = moments_of<GIVES>(
                [&](int p) { return yj + p < Wy; }, [&](int p) { return AS_READ(act_apply(ACT, acc[0][p][c], alpha)); });
            merge(all[c], here);
        }
#endif
    }
#if MOMENTS
    if (!moments) return;
    enum { CHANNELS = 32, ROW = RowOf<CHANNELS>::FLOATS };
    __shared__ float rows[32 * ROW], box[512];
    UNPACK_ROW_PLAN
#pragma unroll
    for (int c = 0; c < 4; c++) store_moments<CHANNELS>(rows + group * ROW, o4 + c, all[c]);
    finish_moments<256, CHANNELS>(rows, 32, row_plan, (int)blockIdx.x, (int)blockIdx.y, O, box);
#endif
}
#endif

#ifdef CONV_WGRAD
extern "C" __global__ void __launch_bounds__(256, POOL ? 3 : 2) conv2d_first_wgrad_f32(
    const real *__restrict__ dy, const real *__restrict__ y, const u8 *__restrict__ index, const real *__restrict__ x,
    float *__restrict__ part, SIZES, int with_bias, float alpha)
{
    wait_for_last_launch();
    enum {
        MINE = POOL ? 4 : 8, TH = 8 * MINE / TW, /* values of y of a warp; rows of a tile */
        SPAN = (4 + FKW - 1) * FC,
        TURN = 8, /* of the K + 1 sums, how many pass through shared memory together */
    };
    typedef Image<S * TH, S * TW> Tile;
    __shared__ __align__(16) float shared[(int)Tile::FLOATS > TURN * 256 ? (int)Tile::FLOATS : TURN * 256];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, o = (int)blockIdx.y * 32 + lane;
    const int across = (Wy + TW - 1) / TW, down = (Hy + TH - 1) / TH, tiles = N * down * across;
    float acc[K + 1]; /* the last is the bias */
#pragma unroll
    for (int k = 0; k <= K; k++) acc[k] = 0.0f;

    Tile next;
    float next_dy[MINE], next_y[MINE];
    u32 next_place[MINE];
    const auto bring = [&](int t) {
        const Spot at = SPOT(t);
        next.bring(x, at.n, S * TH * at.i, S * TW * at.j, H, W, top, left);
#pragma unroll
        for (int e = 0; e < MINE; e++) {
            const u32 p = warp * MINE + e;
            const int i = at.i * TH + (int)(p / TW), j = at.j * TW + (int)(p % TW);
            const bool exists = i < Hy && j < Wy && o < O;
            const size_t from = exists ? ((size_t)(at.n * Hy + i) * Wy + j) * O + o : 0;
            next_dy[e] = exists ? get(dy + from) : 0.0f;
            next_y[e] = ACT && exists ? get(y + from) : 0.0f;
            if (POOL) next_place[e] = index[from];
        }
    };
    if ((int)blockIdx.x < tiles) bring((int)blockIdx.x);
    for (int t = (int)blockIdx.x; t < tiles; t += (int)gridDim.x) {
        __syncthreads(); /* the tile before is used up */
        next.put_into(shared);
        float g[MINE];
        u32 place[MINE];
#pragma unroll
        for (int e = 0; e < MINE; e++) {
            g[e] = act_mask(ACT, next_dy[e], next_y[e], alpha);
            place[e] = POOL ? next_place[e] : 0;
            acc[K] += g[e];
        }
        __syncthreads();
        if (t + (int)gridDim.x < tiles) bring(t + (int)gridDim.x);
#if POOL
#pragma unroll
        for (int e = 0; e < MINE; e++) {
            const u32 p = warp * MINE + e, i = 2 * (p / TW) + (place[e] >> 1), j = 2 * (p % TW) + (place[e] & 1);
            const float *seen = shared + i * Tile::PITCH + j * FC;
#pragma unroll
            for (int k = 0; k < K; k++)
                acc[k] = fmaf(seen[k / (FKW * FC) * Tile::PITCH + k % (FKW * FC)], g[e], acc[k]);
        }
#else
#pragma unroll
        for (int q = 0; q < MINE; q += 4) { /* 4 neighbours */
            const u32 p = warp * MINE + q;
#pragma unroll
            for (int u = 0; u < FKH; u++) {
                float s[(SPAN + 3) / 4 * 4];
                segment<SPAN>(s, shared + (p / TW + u) * Tile::PITCH + p % TW * FC);
#pragma unroll
                for (int k = 0; k < FKW * FC; k++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        acc[u * FKW * FC + k] = fmaf(s[e * FC + k], g[q + e], acc[u * FKW * FC + k]);
            }
        }
#endif
    }

    /* over the 8 warps, in their order */
    part += (size_t)blockIdx.x * ((size_t)O * K + (with_bias ? O : 0));
#pragma unroll
    for (int k0 = 0; k0 <= K; k0 += TURN) {
        __syncthreads();
#pragma unroll
        for (int k = k0; k < k0 + TURN && k <= K; k++) shared[(warp * TURN + k - k0) * 32 + lane] = acc[k];
        __syncthreads();
        const int k = k0 + warp; /* each warp adds one of them */
        if (k > K || o >= O) continue;
        float sum = 0.0f;
#pragma unroll
        for (int v = 0; v < 8; v++) sum += shared[(v * TURN + warp) * 32 + lane];
        if (k < K) part[(size_t)o * K + k] = sum;
        else if (with_bias) part[(size_t)O * K + o] = sum;
    }
}
#endif
