/* depthwise_conv2d: one small kernel for each channel.
 *   forward    y[n,i,j,c] = act(b[c] + sum_uv x[n, i*SH+u*DH-PT, j*SW+v*DW-PL, c] * w[u,v,c]), zero outside the image
 *   backward   dh = dy * act'(y)
 *              dx[n,h,w,c] = add + sum_uv dh[n,i,j,c] * w[u,v,c] over i*SH+u*DH-PT = h, j*SW+v*DW-PL = w
 *              dw[u,v,c] = sum_nij x[n, i*SH+u*DH-PT, j*SW+v*DW-PL, c] * dh[n,i,j,c]     db[c] = sum_nij dh[n,i,j,c]
 * x, dx, add (N,H,W,C)  y, dy (N,Ho,Wo,C) real   w (KH,KW,C)  b (C)  part (S, KH*KW+1, C) float
 * b, add NULL: none; y is not read in backward when ACT is none
 * Macros    ACT; KH KW SH SW DH DW PT PL (kernel, stride, dilation, padding at top and left);
 *           VEC: channels a thread takes, 4, 2 or 1, divides C; QH, QW: the patch of outputs (in dx: of cells of
 *           SH x SW pixels) a thread computes, so that what it loads serves several
 * Launch    forward: x covers ceil(Wo/QW) * C/VEC, y covers N * ceil(Ho/QH). backward: the same over the cells that
 *           cover the image, Hc = ceil((H + PT) / SH); needs SH = 1 or DH = 1, and the same for the width.
 *           weights: columns.cuh, grid (tiles, S ranges of strips of QW outputs); fold_f32 (sum.cu) comes after it.
 *           *_naive: any kernel size, one output a thread; weights_naive: grid (tiles, KH*KW + 1), all in one launch
 * Aliasing  dx may be add; nothing else overlaps
 * Order     taps in row order; dx: the reverse; dw: columns.cuh, then s ascends
 * Cost      KH*KW multiplications a value; memory: each tensor once, the halo of a patch from the cache
 */
#include "columns.cuh"

enum { V = VEC };

/* dh of V channels at i. */
__device__ __forceinline__ Pack<V> masked(const real *dy, const real *y, size_t i, float alpha)
{
    Pack<V> d = load<V>(dy + i);
    if (ACT != ACT_NONE) {
        const Pack<V> out = load<V>(y + i);
#pragma unroll
        for (int k = 0; k < V; k++) d.v[k] = act_mask(ACT, d.v[k], out.v[k], alpha);
    }
    return d;
}

__device__ __forceinline__ void multiply_add(Pack<V> &sum, const Pack<V> &a, const Pack<V> &b)
{
#pragma unroll
    for (int k = 0; k < V; k++) sum.v[k] = fmaf(a.v[k], b.v[k], sum.v[k]);
}

__device__ __forceinline__ Pack<V> activated(Pack<V> h, float alpha)
{
#pragma unroll
    for (int k = 0; k < V; k++) h.v[k] = act_apply(ACT, h.v[k], alpha);
    return h;
}

/* older + d, stored. */
__device__ __forceinline__ void give(const real *add, real *dx, size_t i, Pack<V> d)
{
    if (add) {
        const Pack<V> older = load<V>(add + i);
#pragma unroll
        for (int k = 0; k < V; k++) d.v[k] = older.v[k] + d.v[k];
    }
    store(dx + i, d);
}

/* Where the thread works: element e of a row of `across` patches by C/V channel groups. */
struct Place { int patch, c; bool on; };

__device__ __forceinline__ Place place(int across, int C)
{
    const int CV = C / V, e = blockIdx.x * blockDim.x + threadIdx.x, patch = e / CV;
    const Place at = {patch, (e - patch * CV) * V, e < across * CV};
    return at;
}

#ifdef QH /* ---- patches ---- */

extern "C" __global__ void __launch_bounds__(256) depthwise_conv2d_forward_f32(
    const real *__restrict__ x, const float *__restrict__ w, const float *__restrict__ b, real *__restrict__ y, int N,
    int H, int W, int C, int Ho, int Wo, float alpha)
{
    wait_for_last_launch();
    enum { ROWS = (QH - 1) * SH + (KH - 1) * DH + 1, COLS = (QW - 1) * SW + (KW - 1) * DW + 1 };
    const int high = (Ho + QH - 1) / QH, wide = (Wo + QW - 1) / QW;
    const Place at = place(wide, C);
    if (!at.on) return;
    Pack<V> taps[KH * KW];
#pragma unroll
    for (int t = 0; t < KH * KW; t++) taps[t] = load<V>(w + (size_t)t * C + at.c);
    const Pack<V> bias = b ? load<V>(b + at.c) : fill<V>(0.0f);
    for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < N * high; row += gridDim.y * blockDim.y) {
        const int n = row / high, i0 = (row - n * high) * QH, j0 = at.patch * QW;
        const int h0 = i0 * SH - PT, w0 = j0 * SW - PL;
        Pack<V> sum[QH][QW];
#pragma unroll
        for (int p = 0; p < QH * QW; p++) sum[p / QW][p % QW] = bias;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            Pack<V> line[COLS];
            const real *from = x + (((size_t)n * H + h0 + r) * W + w0) * C + at.c;
            const bool inside = h0 + r >= 0 && h0 + r < H;
#pragma unroll
            for (int s = 0; s < COLS; s++)
                line[s] = inside && w0 + s >= 0 && w0 + s < W ? load<V>(from + s * C) : fill<V>(0.0f);
#pragma unroll
            for (int p = 0; p < QH; p++)
#pragma unroll
                for (int u = 0; u < KH; u++)
                    if (p * SH + u * DH == r)
#pragma unroll
                        for (int q = 0; q < QW; q++)
#pragma unroll
                            for (int v = 0; v < KW; v++)
                                multiply_add(sum[p][q], line[q * SW + v * DW], taps[u * KW + v]);
        }
#pragma unroll
        for (int p = 0; p < QH; p++)
#pragma unroll
            for (int q = 0; q < QW; q++)
                if (i0 + p < Ho && j0 + q < Wo)
                    store(y + (((size_t)n * Ho + i0 + p) * Wo + j0 + q) * C + at.c, activated(sum[p][q], alpha));
    }
}

/* Pixel h = i*SH + r - PT of cell i is seen by windows i - a*EH as tap a*SH + r, a < MH; r < SH. */
enum { MH = (KH + SH - 1) / SH, MW = (KW + SW - 1) / SW, EH = SH == 1 ? DH : 1, EW = SW == 1 ? DW : 1 };

extern "C" __global__ void __launch_bounds__(256) depthwise_conv2d_backward_f32(
    const real *__restrict__ dy, const real *__restrict__ y, const float *__restrict__ w, const real *add, real *dx,
    int N, int H, int W, int C, int Ho, int Wo, float alpha)
{
    wait_for_last_launch();
    enum { ROWS = QH + (MH - 1) * EH, COLS = QW + (MW - 1) * EW };
    const int Hc = (H + PT + SH - 1) / SH, Wc = (W + PL + SW - 1) / SW;
    const int high = (Hc + QH - 1) / QH, wide = (Wc + QW - 1) / QW;
    const Place at = place(wide, C);
    if (!at.on) return;
    Pack<V> taps[KH * KW];
#pragma unroll
    for (int t = 0; t < KH * KW; t++) taps[t] = load<V>(w + (size_t)t * C + at.c);
    for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < N * high; row += gridDim.y * blockDim.y) {
        const int n = row / high, i0 = (row - n * high) * QH, j0 = at.patch * QW;
        const int first = i0 - (MH - 1) * EH, left = j0 - (MW - 1) * EW;
        Pack<V> sum[QH * SH][QW * SW];
#pragma unroll
        for (int p = 0; p < QH * SH * QW * SW; p++) sum[p / (QW * SW)][p % (QW * SW)] = fill<V>(0.0f);
#pragma unroll
        for (int f = 0; f < ROWS; f++) {
            Pack<V> line[COLS];
            const bool inside = first + f >= 0 && first + f < Ho;
#pragma unroll
            for (int s = 0; s < COLS; s++)
                line[s] = inside && left + s >= 0 && left + s < Wo
                    ? masked(dy, y, (((size_t)n * Ho + first + f) * Wo + left + s) * C + at.c, alpha)
                    : fill<V>(0.0f);
#pragma unroll
            for (int p = 0; p < QH * SH; p++)
#pragma unroll
                for (int a = 0; a < MH; a++)
                    if (p / SH + (MH - 1 - a) * EH == f && a * SH + p % SH < KH)
#pragma unroll
                        for (int q = 0; q < QW * SW; q++)
#pragma unroll
                            for (int e = 0; e < MW; e++)
                                if (e * SW + q % SW < KW)
                                    multiply_add(sum[p][q], line[q / SW + (MW - 1 - e) * EW],
                                                 taps[(a * SH + p % SH) * KW + e * SW + q % SW]);
        }
#pragma unroll
        for (int p = 0; p < QH * SH; p++)
#pragma unroll
            for (int q = 0; q < QW * SW; q++) {
                const int h = i0 * SH + p - PT, l = j0 * SW + q - PL;
                if (h >= 0 && h < H && l >= 0 && l < W)
                    give(add, dx, (((size_t)n * H + h) * W + l) * C + at.c, sum[p][q]);
            }
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) depthwise_conv2d_weights_f32(
    const real *__restrict__ dy, const real *__restrict__ y, const real *__restrict__ x, float *__restrict__ part,
    int N, int H, int W, int C, int Ho, int Wo, int chunk, int log_tx, float alpha)
{
    wait_for_last_launch();
    enum { COLS = (QW - 1) * SW + (KW - 1) * DW + 1 };
    __shared__ float box[COLUMN_BOX];
    const Columns at = columns<V>(log_tx);
    const int wide = (Wo + QW - 1) / QW, end = min(N * Ho * wide, (int)(blockIdx.y + 1) * chunk);
    Pack<V> sum[KH * KW + 1];
#pragma unroll
    for (int t = 0; t <= KH * KW; t++) sum[t] = fill<V>(0.0f);
    if (at.c < C)
        for (int strip = blockIdx.y * chunk + at.ty; strip < end; strip += at.TY) {
            const int row = strip / wide, j0 = (strip - row * wide) * QW, n = row / Ho, i = row - n * Ho;
            const int h0 = i * SH - PT, w0 = j0 * SW - PL;
            Pack<V> d[QW];
#pragma unroll
            for (int q = 0; q < QW; q++) {
                d[q] = j0 + q < Wo ? masked(dy, y, ((size_t)row * Wo + j0 + q) * C + at.c, alpha) : fill<V>(0.0f);
#pragma unroll
                for (int k = 0; k < V; k++) sum[KH * KW].v[k] += d[q].v[k];
            }
#pragma unroll
            for (int u = 0; u < KH; u++) {
                if (h0 + u * DH < 0 || h0 + u * DH >= H) continue;
                const real *from = x + (((size_t)n * H + h0 + u * DH) * W + w0) * C + at.c;
                Pack<V> line[COLS];
#pragma unroll
                for (int s = 0; s < COLS; s++)
                    line[s] = w0 + s >= 0 && w0 + s < W ? load<V>(from + s * C) : fill<V>(0.0f);
#pragma unroll
                for (int v = 0; v < KW; v++)
#pragma unroll
                    for (int q = 0; q < QW; q++) multiply_add(sum[u * KW + v], line[q * SW + v * DW], d[q]);
            }
        }
#pragma unroll
    for (int t = 0; t <= KH * KW; t++) {
        const Pack<V> all = column_sum(sum[t], at, box);
        if (at.c < C && at.ty == 0) store(part + ((size_t)blockIdx.y * (KH * KW + 1) + t) * C + at.c, all);
    }
}

#endif /* ---- any kernel size: the second reference, and what runs where a patch would not fit in registers ---- */

extern "C" __global__ void depthwise_conv2d_forward_naive_f32(
    const real *__restrict__ x, const float *__restrict__ w, const float *__restrict__ b, real *__restrict__ y, int N,
    int H, int W, int C, int Ho, int Wo, float alpha)
{
    wait_for_last_launch();
    const Place at = place(Wo, C);
    if (!at.on) return;
    for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < N * Ho; row += gridDim.y * blockDim.y) {
        const int n = row / Ho, i = row - n * Ho;
        Pack<V> sum = b ? load<V>(b + at.c) : fill<V>(0.0f);
#pragma unroll 1
        for (int u = 0; u < KH; u++)
#pragma unroll 1
            for (int v = 0; v < KW; v++) {
                const int h = i * SH + u * DH - PT, l = at.patch * SW + v * DW - PL;
                if (h >= 0 && h < H && l >= 0 && l < W)
                    multiply_add(sum, load<V>(x + (((size_t)n * H + h) * W + l) * C + at.c),
                                 load<V>(w + (size_t)(u * KW + v) * C + at.c));
            }
        store(y + ((size_t)row * Wo + at.patch) * C + at.c, activated(sum, alpha));
    }
}

extern "C" __global__ void depthwise_conv2d_backward_naive_f32(
    const real *__restrict__ dy, const real *__restrict__ y, const float *__restrict__ w, const real *add, real *dx,
    int N, int H, int W, int C, int Ho, int Wo, float alpha)
{
    wait_for_last_launch();
    const Place at = place(W, C);
    if (!at.on) return;
    for (int row = blockIdx.y * blockDim.y + threadIdx.y; row < N * H; row += gridDim.y * blockDim.y) {
        const int n = row / H, h = row - n * H;
        Pack<V> sum = fill<V>(0.0f);
#pragma unroll 1
        for (int u = 0; u < KH; u++)
#pragma unroll 1
            for (int v = 0; v < KW; v++) {
                const int i = h + PT - u * DH, j = at.patch + PL - v * DW;
                if (i < 0 || i % SH || i / SH >= Ho || j < 0 || j % SW || j / SW >= Wo) continue;
                multiply_add(sum, masked(dy, y, (((size_t)n * Ho + i / SH) * Wo + j / SW) * C + at.c, alpha),
                             load<V>(w + (size_t)(u * KW + v) * C + at.c));
            }
        give(add, dx, ((size_t)row * W + at.patch) * C + at.c, sum);
    }
}

/* blockIdx.y is the tap; the last stands for the bias, which sees 1 everywhere. */
extern "C" __global__ void __launch_bounds__(256) depthwise_conv2d_weights_naive_f32(
    const real *__restrict__ dy, const real *__restrict__ y, const real *__restrict__ x, float *dw, float *db, int N,
    int H, int W, int C, int Ho, int Wo, int log_tx, int accumulate, float alpha)
{
    wait_for_last_launch();
    __shared__ float box[COLUMN_BOX];
    const Columns at = columns<V>(log_tx);
    const int tap = blockIdx.y, u = tap / KW, v = tap % KW;
    const bool bias = tap == KH * KW;
    float *out = bias ? db : dw ? dw + (size_t)tap * C : dw;
    if (!out) return;
    Pack<V> sum = fill<V>(0.0f);
    if (at.c < C)
        for (int p = at.ty; p < N * Ho * Wo; p += at.TY) {
            const int row = p / Wo, n = row / Ho;
            const int h = (row - n * Ho) * SH + u * DH - PT, l = (p - row * Wo) * SW + v * DW - PL;
            if (!bias && (h < 0 || h >= H || l < 0 || l >= W)) continue;
            multiply_add(sum, masked(dy, y, (size_t)p * C + at.c, alpha),
                         bias ? fill<V>(1.0f) : load<V>(x + (((size_t)n * H + h) * W + l) * C + at.c));
        }
    sum = column_sum(sum, at, box);
    if (at.c < C && at.ty == 0)
#pragma unroll
        for (int k = 0; k < V; k++) out[at.c + k] = accumulate ? out[at.c + k] + sum.v[k] : sum.v[k];
}
