/* maxpool2d: the largest value each window sees, and in training which tap it was.
 *   forward    y[n,i,j,c] = max_uv x[n, i*SH+u-PT, j*SW+v-PL, c] over the taps inside; index = u*KW+v, the first in
 *              row order among equal values
 *   backward   dx[n,h,w,c] = add + sum of dy over the windows whose index is this pixel: a gather, each dx written once
 * x, dx, add (N,H,W,C)  y, dy, index (N,Ho,Wo,C)   real, index one byte; index NULL in forward: not kept
 * Macros    KH KW SH SW PT PL (kernel, stride, padding at top and left); VEC: 4 where C is a multiple of 4, else 1
 * Launch    forward: x covers Wo * C/V, y covers N * Ho. backward: a thread owns a cell of SH x SW pixels, the ones
 *           that the same windows see: x covers Wc * C/V, y covers N * Hc, Hc = ceil((H + PT) / SH). block: any
 * Aliasing  dx may be add; nothing else overlaps
 * Order     backward adds in the order of the taps
 * Cost      forward reads each pixel and writes each window with its index; backward the reverse
 */
#include "common.cuh"

enum { V = VEC };

extern "C" __global__ void maxpool2d_forward_f32(
    const real *__restrict__ x, real *__restrict__ y, u8 *__restrict__ index, int N, int H, int W, int C, int Ho,
    int Wo)
{
    wait_for_last_launch();
    const int CV = C / V, e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= Wo * CV) return;
    const int j = e / CV, c = (e - j * CV) * V;
    for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < N * Ho; row += gridDim.y * blockDim.y) {
        const int n = row / Ho, h0 = (row - n * Ho) * SH - PT, w0 = j * SW - PL;
        Pack<V> best = fill<V>(-infinity());
        u32 taps = 0; /* a byte for each channel */
#pragma unroll (KH * KW <= 25 ? KH : 1)
        for (int u = 0; u < KH; u++) {
            if (h0 + u < 0 || h0 + u >= H) continue;
            const real *line = x + ((size_t)n * H + h0 + u) * W * C + c;
#pragma unroll (KH * KW <= 25 ? KW : 1)
            for (int v = 0; v < KW; v++) {
                if (w0 + v < 0 || w0 + v >= W) continue;
                const Pack<V> p = load<V>(line + (size_t)(w0 + v) * C);
#pragma unroll
                for (int k = 0; k < V; k++)
                    if (p.v[k] > best.v[k] || p.v[k] != p.v[k]) { /* a NaN wins, so that it is seen */
                        best.v[k] = p.v[k];
                        taps = (taps & ~(255u << 8 * k)) | (u32)(u * KW + v) << 8 * k;
                    }
            }
        }
        const size_t to = ((size_t)row * Wo + j) * C + c;
        store(y + to, best);
        if (index) {
            if (V == 4) *reinterpret_cast<u32 *>(index + to) = taps;
            else index[to] = (u8)taps;
        }
    }
}

enum { MH = (KH + SH - 1) / SH, MW = (KW + SW - 1) / SW, SMALL = SH * SW * MH * MW <= 36 };

extern "C" __global__ void maxpool2d_backward_f32(
    const real *__restrict__ dy, const u8 *__restrict__ index, const real *add, real *dx, int N, int H, int W, int C,
    int Ho, int Wo, int Hc, int Wc)
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
                const size_t at = (((size_t)n * Ho + i - a) * Wo + j - b) * C + c;
                const Pack<V> d = load<V>(dy + at);
                const u32 taps = V == 4 ? *reinterpret_cast<const u32 *>(index + at) : index[at];
#pragma unroll
                for (int k = 0; k < V; k++)
                    if ((taps >> 8 * k & 255) == (u32)(u * KW + v)) sum.v[k] += d.v[k];
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
