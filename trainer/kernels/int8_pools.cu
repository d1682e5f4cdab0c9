/* int8_pools: the mean of windows, and of whole images, in whole numbers; what comes out is the float32 they stand for.
 *   int8_avgpool2d         q = floor((2 sum + count) / (2 count)), count the taps that count; outside the image zero(x)
 *                          where all do, else nothing. y has x's scale and zero point
 *   int8_mean_scale        y's scale grows to at least s(x) / P
 *   int8_global_avg_pool   q[c] = clamp(zero(y) + requant(sum_p x[p,c] - P zero(x), M)), M / 2^31 = s(x) / s(y) / P
 * x (N,H,W,C), (N,P,C) float32   y (N,Ho,Wo,C), (N,C) float32
 * Macros    KH, KW, SH, SW, PT, PL, COUNT_PAD (of the windows alone)
 * Launch    pools: grid: any, block: any, a thread has an output. mean_scale: one thread
 * Aliasing  none
 */
#include "int8.cuh"

#ifdef KH
extern "C" __global__ void __launch_bounds__(256) int8_avgpool2d(
    const float *__restrict__ x, const Scale *x_scale, float *__restrict__ y, int N, int H, int W, int C, int Ho, int Wo)
{
    wait_for_last_launch();
    const Scale s = *x_scale;
    const float inverse = 1.0f / s.scale;
    const u32 count = (u32)N * Ho * Wo * C;
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < count; at += gridDim.x * blockDim.x) {
        const u32 p = at / C;
        const int c = (int)(at - p * C), n = (int)(p / (Ho * Wo)), ij = (int)(p - (u32)n * (Ho * Wo));
        int sum = 0, taps = 0;
        for (int u = 0; u < KH; u++)
            for (int v = 0; v < KW; v++) {
                const int i = ij / Wo * SH - PT + u, j = ij % Wo * SW - PL + v;
                const bool inside = i >= 0 && i < H && j >= 0 && j < W;
                if (inside) sum += whole(x[(((size_t)n * H + i) * W + j) * C + c], inverse, s.zero);
                else if (COUNT_PAD) sum += s.zero;
                taps += inside || COUNT_PAD;
            }
        const int above = 2 * sum + taps, q = above / (2 * taps);
        y[at] = real_of(q - (above % (2 * taps) < 0), s);
    }
}
#else
extern "C" __global__ void int8_mean_scale(const Scale *x_scale, Scale *y_scale, int P)
{
    wait_for_last_launch();
    y_scale->scale = wider(y_scale->scale, (double)x_scale->scale / (double)P);
}

extern "C" __global__ void __launch_bounds__(256) int8_global_avg_pool(
    const float *__restrict__ x, const Scale *x_scale, const Scale *y_scale, float *__restrict__ y, int N, int P, int C)
{
    wait_for_last_launch();
    const Scale sx = *x_scale, sy = *y_scale;
    const float inverse = 1.0f / sx.scale;
    const int M = multiplier((double)sx.scale / (double)sy.scale / (double)P);
    for (u32 at = blockIdx.x * blockDim.x + threadIdx.x; at < (u32)N * C; at += gridDim.x * blockDim.x) {
        const float *from = x + (size_t)(at / C) * P * C + at % C;
        int sum = -P * sx.zero;
        for (int p = 0; p < P; p++) sum += whole(from[(size_t)p * C], inverse, sx.zero);
        y[at] = real_of(clamp(sy.zero + requant(sum, M), LO, HI), sy);
    }
}
#endif
