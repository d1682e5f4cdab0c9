/* int8_product: conv2d, and linear as one of 1 x 1, in whole numbers; what comes out is the float32 they stand for.
 *   q[n,i,j,o] = clamp(zero(y) + requant(B[o] + sum_uvc x[n, i*s+u*d-top, j*s+v*d-left, c] w[o,u,v,c], M[o]), lo, hi)
 *   y = s(y) (q - zero(y));  x is zero(x) outside the image
 * int8_pack     x (P, G, C) float32 to packed (P, G, W) int32: four int8 of neighbouring channels, W = ceil(C / 4)
 * int8_product  packed (N,H,W,G,Cw)   words (O,KH,KW,Cw), O = G Og   numbers (2 O + 4) (int8.cuh)   y (N,Ho,Wo,O)
 *               y_scale: set to what numbers say, by one thread; nothing else of this launch reads it
 * Launch    pack: grid: any, block: any, a thread has a word. product: grid (ceil(N Ho Wo / 64), ceil(Og / 64), G),
 *           block (256): a tile of 64 pixels by 64 channels, a thread 4 x 4 of it; 32 products of a sum at a time
 * Edges     any sizes: words past an end are 0 in the weights, outputs past an edge are not stored
 * Aliasing  none
 * Order     whole numbers: none matters
 * Cost      a dot product of four takes one instruction from compute capability 6.1 on, eight before
 */
#include "int8.cuh"

extern "C" __global__ void __launch_bounds__(256) int8_pack(
    const float *__restrict__ x, const Scale *x_scale, int *__restrict__ packed, int count, int C, int W)
{
    wait_for_last_launch();
    const Scale s = *x_scale;
    const float inverse = 1.0f / s.scale;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)count; i += gridDim.x * blockDim.x) {
        const u32 row = i / W;
        const int c = 4 * (int)(i - row * W);
        const float *from = x + (size_t)row * C + c;
        int word = 0;
        for (int j = 0; j < 4 && c + j < C; j++) word |= byte_of(whole(from[j], inverse, s.zero), j);
        packed[i] = word;
    }
}

enum { TILE_SIDE = 64, DEEP = 8, ROW = TILE_SIDE + 4 };

extern "C" __global__ void __launch_bounds__(256) int8_product(
    const int *__restrict__ packed, const int *__restrict__ words, const int *__restrict__ numbers,
    const Scale *x_scale, Scale *y_scale, float *__restrict__ y,
    int N, int H, int W, int Cw, int Og, int Ho, int Wo, int KH, int KW, int SH, int SW, int PT, int PL, int DH, int DW,
    int G)
{
    wait_for_last_launch();
    __shared__ __align__(16) int xs[DEEP][ROW], ws[DEEP][ROW];
    const int t = threadIdx.x, pixels = N * Ho * Wo, O = G * Og, group = blockIdx.z;
    const int p0 = blockIdx.x * TILE_SIDE, o0 = blockIdx.y * TILE_SIDE;
    const int border = (x_scale->zero & 255) * 0x01010101;
    const int k = t % DEEP, first = t / DEEP, deep = KH * KW * Cw; /* the word this thread loads, of two rows */
    int top[2], left[2], image[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int p = min(p0 + first + 32 * r, pixels - 1), n = p / (Ho * Wo), ij = p - n * (Ho * Wo);
        top[r] = ij / Wo * SH - PT;
        left[r] = ij % Wo * SW - PL;
        image[r] = n;
    }
    int acc[4][4];
#pragma unroll
    for (int a = 0; a < 4; a++)
#pragma unroll
        for (int b = 0; b < 4; b++) acc[a][b] = 0;
    const int tx = t % 16, ty = t / 16;
    for (int k0 = 0; k0 < deep; k0 += DEEP) {
        const int at = k0 + k, tap = at / Cw, c = at - tap * Cw, u = tap / KW, v = tap - u * KW;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int i = top[r] + u * DH, j = left[r] + v * DW, o = o0 + first + 32 * r;
            int word = border;
            if (at < deep && i >= 0 && i < H && j >= 0 && j < W)
                word = packed[((((size_t)image[r] * H + i) * W + j) * G + group) * Cw + c];
            xs[k][first + 32 * r] = word;
            ws[k][first + 32 * r] = at < deep && o < Og ? words[(size_t)(group * Og + o) * deep + at] : 0;
        }
        __syncthreads(); /* tile complete */
#pragma unroll
        for (int d = 0; d < DEEP; d++) {
            const int4 a = *reinterpret_cast<const int4 *>(&xs[d][4 * ty]);
            const int4 b = *reinterpret_cast<const int4 *>(&ws[d][4 * tx]);
            const int as[4] = {a.x, a.y, a.z, a.w}, bs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) acc[i][j] = dot4(as[i], bs[j], acc[i][j]);
        }
        __syncthreads(); /* tile consumed */
    }
    const int lo = numbers[2 * O], hi = numbers[2 * O + 1];
    const Scale s = {__int_as_float(numbers[2 * O + 2]), numbers[2 * O + 3]};
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int o = o0 + 4 * tx + j;
        if (o >= Og) continue;
        const int B = numbers[group * Og + o], M = numbers[O + group * Og + o];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int p = p0 + 4 * ty + i;
            if (p < pixels)
                y[(size_t)p * O + group * Og + o] = real_of(clamp(s.zero + requant(acc[i][j] + B, M), lo, hi), s);
        }
    }
    if (blockIdx.x == 0 && blockIdx.y == 0 && group == 0 && t == 0) y_scale->scale = s.scale;
}
