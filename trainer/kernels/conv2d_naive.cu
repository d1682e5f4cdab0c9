/* conv2d_naive: the formulas of conv2d.cu written out, with groups: the second reference, and what runs where the fast
 * kernels do not (groups, more than 32 taps).
 * x, dx, add (N,H,W,C)   w, dw (O,KH,KW,C/groups)   b, db (O)   y, dy (N,Ho,Wo,O)   float32
 * Macros    ACT, number of the activation
 * Launch    forward, dgrad   one thread for each result; grid: any, block: any
 *           wgrad            one block for each value of dw, then of db; block 256; its threads share the pixels
 * Edges     any size        Aliasing  dx may be add        Order  fixed: equal inputs give equal bits
 */
#include "common.cuh"

#define SIZES                                                                                              \
    int N, int H, int W, int C, int O, int Ho, int Wo, int KH, int KW, int sh, int sw, int top, int left,  \
        int eh, int ew, int groups

extern "C" __global__ void conv2d_forward_naive_f32(
    const float *x, const float *w, const float *b, float *y, SIZES, float alpha)
{
    const int Cg = C / groups, Og = O / groups;
    const size_t all = (size_t)N * Ho * Wo * O;
    for (size_t e = (size_t)blockIdx.x * blockDim.x + threadIdx.x; e < all; e += (size_t)gridDim.x * blockDim.x) {
        const int o = (int)(e % O), j = (int)(e / O % Wo), i = (int)(e / O / Wo % Ho);
        const size_t n = e / O / Wo / Ho;
        float s = b ? b[o] : 0.0f;
        for (int u = 0; u < KH; u++)
            for (int v = 0; v < KW; v++) {
                const int p = i * sh + u * eh - top, q = j * sw + v * ew - left;
                if (p < 0 || p >= H || q < 0 || q >= W) continue;
                const float *xs = x + ((n * H + p) * W + q) * C + o / Og * Cg;
                const float *ws = w + (((size_t)o * KH + u) * KW + v) * Cg;
                for (int c = 0; c < Cg; c++) s = fmaf(xs[c], ws[c], s);
            }
        y[e] = act_apply(ACT, s, alpha);
    }
}

__device__ __forceinline__ float masked(const float *dy, const float *y, size_t at, float alpha)
{
    return ACT ? act_mask(ACT, dy[at], y[at], alpha) : dy[at];
}

extern "C" __global__ void conv2d_dgrad_naive_f32(
    const float *dy, const float *y, const float *w, const float *add, float *dx, SIZES, float alpha)
{
    const int Cg = C / groups, Og = O / groups;
    const size_t all = (size_t)N * H * W * C;
    for (size_t e = (size_t)blockIdx.x * blockDim.x + threadIdx.x; e < all; e += (size_t)gridDim.x * blockDim.x) {
        const int c = (int)(e % C), j = (int)(e / C % W), i = (int)(e / C / W % H), g = c / Cg;
        const size_t n = e / C / W / H;
        float s = 0.0f;
        for (int u = 0; u < KH; u++)
            for (int v = 0; v < KW; v++) {
                const int p = i + top - u * eh, q = j + left - v * ew;
                if (p < 0 || q < 0 || p % sh || q % sw || p / sh >= Ho || q / sw >= Wo) continue;
                const size_t at = ((n * Ho + p / sh) * Wo + q / sw) * O;
                for (int o = g * Og; o < (g + 1) * Og; o++)
                    s = fmaf(masked(dy, y, at + o, alpha), w[(((size_t)o * KH + u) * KW + v) * Cg + c - g * Cg], s);
            }
        dx[e] = add ? add[e] + s : s;
    }
}

extern "C" __global__ void conv2d_wgrad_naive_f32(
    const float *dy, const float *y, const float *x, float *dw, float *db, SIZES, int accumulate, float alpha)
{
    __shared__ float box[32];
    const int Cg = C / groups, Og = O / groups, K = KH * KW * Cg;
    const size_t values = (size_t)O * K;
    const bool is_bias = blockIdx.x >= values;
    const int o = is_bias ? (int)(blockIdx.x - values) : (int)(blockIdx.x / K), k = is_bias ? 0 : (int)(blockIdx.x % K);
    const int u = k / Cg / KW, v = k / Cg % KW, c = o / Og * Cg + k % Cg;
    float s = 0.0f;
    for (size_t e = threadIdx.x; e < (size_t)N * Ho * Wo; e += blockDim.x) {
        const int p = (int)(e / Wo % Ho) * sh + u * eh - top, q = (int)(e % Wo) * sw + v * ew - left;
        const float g = masked(dy, y, e * O + o, alpha);
        if (is_bias) s += g;
        else if (p >= 0 && p < H && q >= 0 && q < W) s = fmaf(g, x[((e / Wo / Ho * H + p) * W + q) * C + c], s);
    }
    s = block_sum(s, box);
    float *out = is_bias ? db + o : dw + blockIdx.x;
    if (threadIdx.x == 0) *out = accumulate ? *out + s : s;
}
