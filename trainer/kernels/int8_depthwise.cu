/* int8_depthwise: depthwise_conv2d in whole numbers; what comes out is the float32 they stand for.
 *   q[n,i,j,c] = clamp(zero(y) + requant(B[c] + sum_uv x[n, i*s+u*d-top, j*s+v*d-left, c] w[u,v,c], M[c]), lo, hi)
 *   y = s(y) (q - zero(y));  x is zero(x) outside the image
 * x (N,H,W,C) float32   bytes (KH,KW,C) int8   numbers (2 C + 4) (int8.cuh)   y (N,Ho,Wo,C)
 * y_scale: set to what numbers say, by one thread; nothing else of this launch reads it
 * Launch    grid: any, block: any; a thread has an output
 * Aliasing  none
 * Cost      reads x once for each tap, from the cache mostly
 */
#include "int8.cuh"

extern "C" __global__ void __launch_bounds__(256) int8_depthwise(
    const float *__restrict__ x, const i8 *__restrict__ bytes, const int *__restrict__ numbers, const Scale *x_scale,
    Scale *y_scale, float *__restrict__ y,
    int N, int H, int W, int C, int Ho, int Wo, int KH, int KW, int SH, int SW, int PT, int PL, int DH, int DW)
{
    wait_for_last_launch();
    const Scale sx = *x_scale, s = {__int_as_float(numbers[2 * C + 2]), numbers[2 * C + 3]};
    const float inverse = 1.0f / sx.scale;
    const int lo = numbers[2 * C], hi = numbers[2 * C + 1];
    const u32 count = (u32)N * Ho * Wo * C;
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x) {
        const u32 p = at / C;
        const int c = (int)(at - p * C), n = (int)(p / (Ho * Wo)), ij = (int)(p - (u32)n * (Ho * Wo));
        const int top = ij / Wo * SH - PT, left = ij % Wo * SW - PL;
        int acc = numbers[c];
        for (int u = 0; u < KH; u++)
            for (int v = 0; v < KW; v++) {
                const int i = top + u * DH, j = left + v * DW;
                const bool inside = i >= 0 && i < H && j >= 0 && j < W;
                const int q = inside ? whole(x[(((size_t)n * H + i) * W + j) * C + c], inverse, sx.zero) : sx.zero;
                acc += q * bytes[(u * KW + v) * C + c];
            }
        y[at] = real_of(clamp(s.zero + requant(acc, numbers[C + c]), lo, hi), s);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) y_scale->scale = s.scale;
}
