/* conv2d_first: forward and weight gradient of a convolution over few channels (the first layer: C = 1 or 3), stride
 * and dilation 1. The sums are so short (9 or 27 terms) that memory sets the pace; the image passes through shared
 * memory, with a border of zeros, and weights (forward) or their sums (wgrad) stay in registers.
 *   forward   y[n,i,j,o] = act(b[o] + sum_uvc x[n, i+u-top, j+v-left, c] w[o,u,v,c])
 *   wgrad     dw[o,u,v,c] = sum_nij g[n,i,j,o] x[n, i+u-top, j+v-left, c]   db[o] = sum_nij g   with g = dy * act'(y)
 * x (N,H,W,C)   w, dw (O,KH,KW,C)   b, db (O)   y, dy (N,Ho,Wo,O)   float32
 *
 * Macros    FC, FKH, FKW   C, KH, KW       ACROSS   a tile is 8*ACROSS pixels wide (1, 2, 4 or 8)
 *           ACT   number of the activation  CONV_FORWARD, CONV_WGRAD   which kernel to compile
 * Launch    forward   grid (tiles of all images), block 256: a thread makes 8 pixels x 4 channels, a tile is
 *                     8*ACROSS x 32/ACROSS pixels, all O in turns of 32
 *           wgrad     grid (parts, ceil(O / 32)), block 128: tiles of 8*ACROSS x 16/ACROSS pixels; block z sums tiles
 *                     z, z + parts, ... into part[z][O*K + O]; conv2d_sum_f32 adds the parts
 * Edges     any N, H, W, O        Aliasing  none overlap        Order  fixed for a given number of parts
 * Cost      forward: 4 bytes a value of y and 2 K operations; wgrad reads dy, and y where the activation masks
 */
#include "common.cuh"

#define SIZES int N, int H, int W, int O, int Ho, int Wo, int top, int left

enum {
    K = FKH * FKW * FC,
    WIDE = 8 * ACROSS,
    PITCH = ((WIDE + FKW - 1) * FC + 7) / 4 * 4 /* floats of a tile's row; readers take whole float4 */
};

/* Rows i0-top.. and columns j0-left.. of image n, zeros outside. */
template <int HIGH, int THREADS>
__device__ __forceinline__ void stage(float *tile, const float *x, size_t n, int i0, int j0, int H, int W,
                                      int top, int left)
{
    for (int e = (int)threadIdx.x; e < (HIGH + FKH - 1) * PITCH; e += THREADS) {
        const int r = e / PITCH, i = i0 - top + r, j = (j0 - left) * FC + e - r * PITCH;
        const bool inside = (unsigned)i < (unsigned)H && (unsigned)j < (unsigned)(W * FC);
        tile[e] = inside ? x[(n * H + i) * W * FC + j] : 0.0f;
    }
}

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
    const float *__restrict__ x, const float *__restrict__ w, const float *__restrict__ b, float *__restrict__ y, SIZES,
    float alpha)
{
    enum { HIGH = 32 / ACROSS, PX = 8, SPAN = (PX + FKW - 1) * FC };
    __shared__ __align__(16) float tile[(HIGH + FKH - 1) * PITCH + 4];
    __shared__ __align__(16) float ws[K + 1][32];
    const int tiles_w = (Wo + WIDE - 1) / WIDE, tiles_h = (Ho + HIGH - 1) / HIGH;
    const int j0 = (int)blockIdx.x % tiles_w * WIDE, rest = (int)blockIdx.x / tiles_w;
    const int i0 = rest % tiles_h * HIGH;
    const size_t n = rest / tiles_h;
    stage<HIGH, 256>(tile, x, n, i0, j0, H, W, top, left);
    const int o4 = (int)threadIdx.x % 8 * 4, group = (int)threadIdx.x / 8;
    const int i = group / ACROSS, j = group % ACROSS * PX;
    for (int o0 = 0; o0 < O; o0 += 32) {
        if (o0 > 0) __syncthreads(); /* the weights of the turn before are used up */
        for (int e = (int)threadIdx.x; e < (K + 1) * 32; e += 256) {
            const int k = e / 32, o = o0 + e % 32;
            ws[k][e % 32] = o >= O ? 0.0f : k < K ? w[(size_t)o * K + k] : b ? b[o] : 0.0f;
        }
        __syncthreads();
        float acc[PX][4];
        const Pack<4> bias = load<4>(&ws[K][o4]);
#pragma unroll
        for (int p = 0; p < PX; p++)
#pragma unroll
            for (int c = 0; c < 4; c++) acc[p][c] = bias.v[c];
#pragma unroll
        for (int u = 0; u < FKH; u++) {
            float s[(SPAN + 3) / 4 * 4];
            segment<SPAN>(s, tile + (i + u) * PITCH + j * FC);
#pragma unroll
            for (int t = 0; t < FKW * FC; t++) {
                const Pack<4> wk = load<4>(&ws[u * FKW * FC + t][o4]);
#pragma unroll
                for (int p = 0; p < PX; p++)
#pragma unroll
                    for (int c = 0; c < 4; c++) acc[p][c] = fmaf(s[p * FC + t], wk.v[c], acc[p][c]);
            }
        }
        if (i0 + i >= Ho) continue;
        float *out = y + ((n * Ho + i0 + i) * Wo + j0 + j) * O + o0 + o4;
#pragma unroll
        for (int p = 0; p < PX; p++) {
            if (j0 + j + p >= Wo) continue;
            Pack<4> r;
#pragma unroll
            for (int c = 0; c < 4; c++) r.v[c] = act_apply(ACT, acc[p][c], alpha);
            if (O % 4 == 0) {
                if (o0 + o4 < O) store(out + (size_t)p * O, r);
            } else {
#pragma unroll
                for (int c = 0; c < 4; c++)
                    if (o0 + o4 + c < O) out[(size_t)p * O + c] = r.v[c];
            }
        }
    }
}
#endif

#ifdef CONV_WGRAD
extern "C" __global__ void __launch_bounds__(128) conv2d_first_wgrad_f32(
    const float *__restrict__ dy, const float *__restrict__ y, const float *__restrict__ x, float *__restrict__ part,
    SIZES, int with_bias, float alpha)
{
    enum { HIGH = 16 / ACROSS, PX = 4, SPAN = (PX + FKW - 1) * FC };
    enum { TILE = (HIGH + FKH - 1) * PITCH + 4, SUMS = 4 * 8 * 4 };
    __shared__ __align__(16) float shared[TILE > SUMS ? TILE : SUMS];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, walker = (int)threadIdx.x / 8;
    const int o4 = (int)blockIdx.y * 32 + lane % 8 * 4; /* this thread's channels */
    const int tiles_w = (Wo + WIDE - 1) / WIDE, tiles_h = (Ho + HIGH - 1) / HIGH, tiles = N * tiles_h * tiles_w;
    float acc[K + 1][4]; /* the last is the bias */
#pragma unroll
    for (int k = 0; k <= K; k++)
#pragma unroll
        for (int c = 0; c < 4; c++) acc[k][c] = 0.0f;

    for (int t = (int)blockIdx.x; t < tiles; t += (int)gridDim.x) {
        const int j0 = t % tiles_w * WIDE, rest = t / tiles_w, i0 = rest % tiles_h * HIGH;
        const size_t n = rest / tiles_h;
        __syncthreads(); /* the tile before is used up */
        stage<HIGH, 128>(shared, x, n, i0, j0, H, W, top, left);
        __syncthreads();
        for (int chunk = walker; chunk < HIGH * WIDE / PX; chunk += 16) { /* 4 pixels of a row */
            const int i = chunk / (WIDE / PX), j = chunk % (WIDE / PX) * PX;
            const size_t at = ((n * Ho + i0 + i) * Wo + j0 + j) * O + o4;
            Pack<4> g[PX];
#pragma unroll
            for (int p = 0; p < PX; p++) {
                g[p] = fill<4>(0.0f);
                if (i0 + i >= Ho || j0 + j + p >= Wo) continue;
                const size_t a = at + (size_t)p * O;
                if (O % 4 == 0) {
                    if (o4 < O) {
                        g[p] = load<4>(dy + a);
                        if (ACT) {
                            const Pack<4> r = load<4>(y + a);
#pragma unroll
                            for (int c = 0; c < 4; c++) g[p].v[c] = act_mask(ACT, g[p].v[c], r.v[c], alpha);
                        }
                    }
                } else {
#pragma unroll
                    for (int c = 0; c < 4; c++)
                        if (o4 + c < O) g[p].v[c] = ACT ? act_mask(ACT, dy[a + c], y[a + c], alpha) : dy[a + c];
                }
            }
#pragma unroll
            for (int u = 0; u < FKH; u++) {
                float s[(SPAN + 3) / 4 * 4];
                segment<SPAN>(s, shared + (i + u) * PITCH + j * FC);
#pragma unroll
                for (int e = 0; e < FKW * FC; e++)
#pragma unroll
                    for (int p = 0; p < PX; p++)
#pragma unroll
                        for (int c = 0; c < 4; c++)
                            acc[u * FKW * FC + e][c] = fmaf(s[p * FC + e], g[p].v[c], acc[u * FKW * FC + e][c]);
            }
#pragma unroll
            for (int p = 0; p < PX; p++)
#pragma unroll
                for (int c = 0; c < 4; c++) acc[K][c] += g[p].v[c];
        }
    }

    /* over the 4 walkers of a warp by shuffles, then over the 4 warps, k by k */
    part += (size_t)blockIdx.x * ((size_t)O * K + (with_bias ? O : 0));
#pragma unroll
    for (int k = 0; k <= K; k++) {
        Pack<4> s;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            s.v[c] = acc[k][c] + __shfl_xor_sync(FULL_WARP, acc[k][c], 8);
            s.v[c] += __shfl_xor_sync(FULL_WARP, s.v[c], 16);
        }
        __syncthreads();
        if (lane < 8) store(shared + (warp * 8 + lane) * 4, s);
        __syncthreads();
        const int o = (int)blockIdx.y * 32 + (int)threadIdx.x;
        if (threadIdx.x < 32 && o < O) {
            float sum = 0.0f;
#pragma unroll
            for (int v = 0; v < 4; v++) sum += shared[v * 32 + threadIdx.x];
            if (k < K) part[(size_t)o * K + k] = sum;
            else if (with_bias) part[(size_t)O * K + o] = sum;
        }
    }
}
#endif
