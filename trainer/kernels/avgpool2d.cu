/* avgpool2d: the mean of what each window sees.
 *   forward    y[n,i,j,c] = sum_uv x[n, i*SH+u-PT, j*SW+v-PL, c] / count(i,j) over the taps inside
 *   backward   dx[n,h,w,c] = add + sum over the windows that see the pixel of dy / count: a gather
 * x, dx, add (N,H,W,C)  y, dy (N,Ho,Wo,C)   real
 * Macros    KH KW SH SW PT PL (kernel, stride, padding at top and left); COUNT_PAD: 1: count is KH*KW, 0: the taps
 *           inside; VEC: 4 where C is a multiple of 4, else 1
 * Launch    as maxpool2d.cu
 * Aliasing  dx may be add; nothing else overlaps
 * Order     in the order of the taps
 * Cost      forward reads each pixel once and writes each window; backward the reverse
 */
#include "common.cuh"

enum { V = VEC };

/* Taps inside [0, size) of a window that starts at `first`. */
__device__ __forceinline__ int inside(int first, int taps, int size) { return min(first + taps, size) - max(first, 0); }

__device__ __forceinline__ float count(int i, int j, int H, int W)
{
    return COUNT_PAD ? (float)(KH * KW) : (float)(inside(i * SH - PT, KH, H) * inside(j * SW - PL, KW, W));
}

extern "C" __global__ void avgpool2d_forward_f32(
    const real *__restrict__ x, real *__restrict__ y, int N, int H, int W, int C, int Ho, int Wo)
{
    wait_for_last_launch();
    const int CV = C / V, e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= Wo * CV) return;
    const int j = e / CV, c = (e - j * CV) * V;
    for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < N * Ho; row += gridDim.y * blockDim.y) {
        const int n = row / Ho, i = row - n * Ho, h0 = i * SH - PT, w0 = j * SW - PL;
        Pack<V> sum = fill<V>(0.0f);
#pragma unroll (KH * KW <= 25 ? KH : 1)
        for (int u = 0; u < KH; u++) {
            if (h0 + u < 0 || h0 + u >= H) continue;
            const real *line = x + ((size_t)n * H + h0 + u) * W * C + c;
#pragma unroll (KH * KW <= 25 ? KW : 1)
            for (int v = 0; v < KW; v++) {
                if (w0 + v < 0 || w0 + v >= W) continue;
                const Pack<V> p = load<V>(line + (size_t)(w0 + v) * C);
#pragma unroll
                for (int k = 0; k < V; k++) sum.v[k] += p.v[k];
            }
        }
        const float total = count(i, j, H, W);
#pragma unroll
        for (int k = 0; k < V; k++) sum.v[k] /= total;
        store(y + ((size_t)row * Wo + j) * C + c, sum);
    }
}

enum { MH = (KH + SH - 1) / SH, MW = (KW + SW - 1) / SW, SMALL = SH * SW * MH * MW <= 36 };

extern "C" __global__ void avgpool2d_backward_f32(
    const real *__restrict__ dy, const real *add, real *dx, int N, int H, int W, int C, int Ho, int Wo, int Hc,
    int Wc)
{
    wait_for_last_launch();
    const int CV = C / V, e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= Wc * CV) return;
    const int j = e / CV, c = (e - j * CV) * V;
    for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < N * Hc; row += gridDim.y * blockDim.y) {
        const int n = row / Hc, i = row - n * Hc;
#pragma unroll (SMALL ? SH * SW : 1)
        for (int pixel = 0; pixel < SH * SW; pixel++) {
            const int r = pixel / SW, q = pixel % SW, h = i * SH + r - PT, w = j * SW + q - PL;
            if (h < 0 || h >= H || w < 0 || w >= W) continue;
            Pack<V> sum = fill<V>(0.0f);
#pragma unroll (SMALL ? MH * MW : 1)
            for (int window = 0; window < MH * MW; window++) { /* window (i - a, j - b) sees the pixel as tap (u, v) */
                const int a = window / MW, b = window % MW, u = a * SH + r, v = b * SW + q;
                if (u >= KH || v >= KW || i < a || i - a >= Ho || j < b || j - b >= Wo) continue;
                const Pack<V> d = load<V>(dy + (((size_t)n * Ho + i - a) * Wo + j - b) * C + c);
                const float share = 1.0f / count(i - a, j - b, H, W);
#pragma unroll
                for (int k = 0; k < V; k++) sum.v[k] = fmaf(d.v[k], share, sum.v[k]);
            }
            const size_t to = (((size_t)n * H + h) * W + w) * C + c;
            if (add) {
                const Pack<V> older = load<V>(add + to);
#pragma unroll
                for (int k = 0; k < V; k++) sum.v[k] = older.v[k] + sum.v[k];
            }
            store(dx + to, sum);
        }
    }
}
