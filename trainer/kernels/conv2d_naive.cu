/* conv2d_naive: the formulas of conv2d.cu written out, with groups: the second reference, and what runs where the fast
 * kernels do not (groups, more than 32 taps).
 * x, dx, add (N,H,W,C)   y, dy (N,Ho,Wo,O), POOL: with index (N,Ho/2,Wo/2,O)   stored as REAL, index one byte
 * w, dw (O,KH,KW,C/groups)   b, db (O)   float32
 * Macros    ACT, number of the activation   POOL, 1 for conv2d_pool: with Ho and Wo even
 * Launch    forward, dgrad   one thread for each result; grid: any, block: any
 *           wgrad            one block for each value of dw, then of db; block 256; its threads share the pixels
 * Edges     any size        Aliasing  dx may be add        Order  fixed: equal inputs give equal bits
 */
#include "image.cuh"

#define SIZES                                                                                              \
    int N, int H, int W, int C, int O, int Ho, int Wo, int KH, int KW, int sh, int sw, int top, int left,  \
        int eh, int ew, int groups

/* Bias and sum at (i, j) of the output. */
__device__ __forceinline__ float sum_at(const real *x, const float *w, const float *b, size_t n, int i, int j, int o,
                                        int H, int W, int C, int O, int KH, int KW, int sh, int sw, int top, int left,
                                        int eh, int ew, int groups)
{
    const int Cg = C / groups, Og = O / groups;
    float s = b ? b[o] : 0.0f;
    for (int u = 0; u < KH; u++)
        for (int v = 0; v < KW; v++) {
            const int p = i * sh + u * eh - top, q = j * sw + v * ew - left;
            if (p < 0 || p >= H || q < 0 || q >= W) continue;
            const real *xs = x + ((n * H + p) * W + q) * C + o / Og * Cg;
            const float *ws = w + (((size_t)o * KH + u) * KW + v) * Cg;
            for (int c = 0; c < Cg; c++) s = fmaf(get(xs + c), ws[c], s);
        }
    return s;
}

extern "C" __global__ void conv2d_forward_naive_f32(
    const real *x, const float *w, const float *b, real *y, u8 *index, SIZES, float alpha)
{
    wait_for_last_launch();
    const int Hy = POOL ? Ho / 2 : Ho, Wy = POOL ? Wo / 2 : Wo;
    const size_t all = (size_t)N * Hy * Wy * O;
    for (size_t e = (size_t)blockIdx.x * blockDim.x + threadIdx.x; e < all; e += (size_t)gridDim.x * blockDim.x) {
        const int o = (int)(e % O), j = (int)(e / O % Wy), i = (int)(e / O / Wy % Hy);
        const size_t n = e / O / Wy / Hy;
        const auto at = [&](int p, int q) {
            return sum_at(x, w, b, n, p, q, o, H, W, C, O, KH, KW, sh, sw, top, left, eh, ew, groups);
        };
#if POOL
        const int p = 2 * i, q = 2 * j;
        u32 place;
        const float s = largest(at(p, q), at(p, q + 1), at(p + 1, q), at(p + 1, q + 1), place);
        if (index) index[e] = (u8)place;
#else
        const float s = at(i, j);
#endif
        put(y + e, act_apply(ACT, s, alpha));
    }
}

/* The gradient of the sum at (i, j) of the output. */
__device__ __forceinline__ float gradient_at(const real *dy, const real *y, const u8 *index, size_t n, int i, int j,
                                             int o, int Ho, int Wo, int O, float alpha)
{
    const size_t at = POOL ? ((n * (Ho / 2) + i / 2) * (Wo / 2) + j / 2) * O + o : ((n * Ho + i) * Wo + j) * O + o;
    if (POOL && index[at] != i % 2 * 2 + j % 2) return 0.0f;
    return ACT ? act_mask(ACT, get(dy + at), get(y + at), alpha) : get(dy + at);
}

extern "C" __global__ void conv2d_dgrad_naive_f32(
    const real *dy, const real *y, const u8 *index, const float *w, const real *add, real *dx, SIZES, float alpha)
{
    wait_for_last_launch();
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
                for (int o = g * Og; o < (g + 1) * Og; o++)
                    s = fmaf(gradient_at(dy, y, index, n, p / sh, q / sw, o, Ho, Wo, O, alpha),
                             w[(((size_t)o * KH + u) * KW + v) * Cg + c - g * Cg], s);
            }
        put(dx + e, add ? get(add + e) + s : s);
    }
}

extern "C" __global__ void conv2d_wgrad_naive_f32(
    const real *dy, const real *y, const u8 *index, const real *x, float *dw, float *db, SIZES, int accumulate,
    float alpha)
{
    wait_for_last_launch();
    __shared__ float box[32];
    const int Cg = C / groups, Og = O / groups, K = KH * KW * Cg;
    const size_t values = (size_t)O * K;
    const bool is_bias = blockIdx.x >= values;
    const int o = is_bias ? (int)(blockIdx.x - values) : (int)(blockIdx.x / K), k = is_bias ? 0 : (int)(blockIdx.x % K);
    const int u = k / Cg / KW, v = k / Cg % KW, c = o / Og * Cg + k % Cg;
    float s = 0.0f;
    for (size_t e = threadIdx.x; e < (size_t)N * Ho * Wo; e += blockDim.x) {
        const int i = (int)(e / Wo % Ho), j = (int)(e % Wo), p = i * sh + u * eh - top, q = j * sw + v * ew - left;
        const size_t n = e / Wo / Ho;
        const float g = gradient_at(dy, y, index, n, i, j, o, Ho, Wo, O, alpha);
        if (is_bias) s += g;
        else if (p >= 0 && p < H && q >= 0 && q < W) s = fmaf(g, get(x + ((n * H + p) * W + q) * C + c), s);
    }
    s = block_sum(s, box);
    float *out = is_bias ? db + o : dw + blockIdx.x;
    if (threadIdx.x == 0) *out = accumulate ? *out + s : s;
}
