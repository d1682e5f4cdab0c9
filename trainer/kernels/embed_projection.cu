/* embed_projection: all pixels of an image times one matrix, for the sum of the channels or for each channel.
 *   rows       xs[n,p] = sum_c x[n,p,c] (KEEP 0: R = N rows)   or   xs[n*C+c,p] = x[n,p,c] (KEEP 1: R = N*C rows)
 *   forward    y[r,e] = act(sum_p xs[r,p] w[p,e])
 *   backward   g = dy * act'(y)   dw[p,e] = sum_r xs[r,p] g[r,e], added to what is there if `accumulate`
 *              dx[n,p,c] = add[n,p,c] + sum_e g[r,e] w[p,e], r the row that x[n,p,c] belongs to
 * x, dx, add (N,P,C)   y, dy (R,E)   real     w, dw (P,E)   float32
 *
 * Macros    TILE   BM,BN,BK,TM,TN,KS,BLOCKS of gemm.cuh   VE   4 where E is a multiple of 4, else 1   KEEP 0 or 1
 *           ACT    number of the activation    EMBED_FORWARD, EMBED_BACKWARD   which kernel to compile
 *           SPLIT  2: a block takes a part of the sum over P, and the last of a tile adds up (forward)
 * Launch    forward    grid (tiles of y, splits), block THREADS; SPLIT 2: part[tile][split][PART] and counters[tile]
 *           backward   grid dx_blocks + tiles of dw: the first blocks make dx (none if dx is NULL), the others dw
 * Edges     any N, P, C, E        Aliasing  dx may be add; nothing else overlaps        Order  fixed
 * Cost      2 R P E operations forward, twice that backward
 */
#include "gemm.cuh"

#if defined(EMBED_FORWARD) || defined(EMBED_BACKWARD)
typedef Tile<TILE> T;

/* Element (r,p) of xs. */
__device__ __forceinline__ float pixel(const real *x, int r, int p, int P, int C)
{
    if (KEEP) {
        const int n = r / C;
        return get(x + ((size_t)n * P + p) * C + r - n * C);
    }
    const real *q = x + ((size_t)r * P + p) * C;
    float s = get(q);
    for (int c = 1; c < C; c++) s += get(q + c);
    return s;
}

/* xs by rows, k = p (ByRow L), or by columns, k = r (ByCol L): V is 1. */
template <class L> struct Pixels {
    const real *x;
    int first, rows, P, C;
    template <class Run> __device__ __forceinline__ Pack<1> get(int i, const Run &at) const
    {
        const int r = first + L::row(i), p = at.c + L::k();
        Pack<1> v = {{r < rows && p < at.end ? pixel(x, r, p, P, C) : 0.0f}};
        return v;
    }
};
template <class L> struct PixelColumns {
    const real *x;
    int first, P, C;
    template <class Run> __device__ __forceinline__ Pack<1> get(int k, const Run &at) const
    {
        const int r = at.c + k, p = first + L::col();
        Pack<1> v = {{r < at.end && p < P ? pixel(x, r, p, P, C) : 0.0f}};
        return v;
    }
};
#endif

#ifdef EMBED_FORWARD
extern "C" __global__ void __launch_bounds__(T::THREADS, T::BLOCKS) embed_projection_forward_f32(
    const real *__restrict__ x, const float *__restrict__ w, real *__restrict__ y, float *part, int *counters, int R,
    int P, int C, int E, int per_split, float alpha)
{
    wait_for_last_launch();
    __shared__ __align__(16) float shared[T::FLOATS];
    typedef ByRow<T, T::BM, T::AP, 1> LX;
    typedef ByCol<T, T::BN, T::BP, VE> LW;
    const int tiles_m = (R + T::BM - 1) / T::BM;
    const int m0 = (int)blockIdx.x % tiles_m * T::BM, n0 = (int)blockIdx.x / tiles_m * T::BN;
    const int first = (int)blockIdx.y * per_split, end = min(P, first + per_split); /* per_split: a multiple of BK */
    const Place<T> place;
    Nothing none;
    float acc[T::TM][T::TN];
    product<T, LX, LW>(shared, Straight<T::BK>{first, end}, (end - first + T::BK - 1) / T::BK,
                       Pixels<LX>{x, m0, R, P, C}, Cols<LW, 0>(w, w, n0, E, E, 0.0f), place, acc, none);
#if SPLIT == 2
    part += (size_t)blockIdx.x * gridDim.y * T::PART;
    if (!join_parts<T>(part, counters + blockIdx.x, (int)blockIdx.y, (int)gridDim.y, place.slice, acc)) return;
#endif
    store_tile<T, ACT>(place, acc, m0, n0, R, E, Matrix{E}, nullptr, nullptr, y, alpha);
}
#endif

#ifdef EMBED_BACKWARD
extern "C" __global__ void __launch_bounds__(T::THREADS, T::BLOCKS) embed_projection_backward_f32(
    const real *__restrict__ dy, const real *__restrict__ y, const real *__restrict__ x, const float *__restrict__ w,
    const real *add, real *dx, float *dw, int R, int P, int C, int E, int dx_blocks, int accumulate, float alpha)
{
    wait_for_last_launch();
    __shared__ __align__(16) float shared[T::FLOATS];
    const Place<T> place;
    Nothing none;
    float acc[T::TM][T::TN];
    int block = (int)blockIdx.x;
    if (block < dx_blocks) { /* g (R,E) w^T (E,P), then each value to its pixel (KEEP 0: to all channels of it) */
        typedef ByRow<T, T::BM, T::AP, VE> LD;
        typedef ByRow<T, T::BN, T::BP, VE> LW;
        const int tiles_m = (R + T::BM - 1) / T::BM, m0 = block % tiles_m * T::BM, n0 = block / tiles_m * T::BN;
        product<T, LD, LW>(shared, Straight<T::BK>{0, E}, (E + T::BK - 1) / T::BK,
                           Rows<LD, ACT, real>(dy, y, m0, R, E, alpha), Rows<LW, 0>(w, w, n0, P, E, 0.0f), place, acc,
                           none);
        if (place.slice > 0) return;
#pragma unroll
        for (int i = 0; i < T::TM; i++)
#pragma unroll
            for (int j = 0; j < T::TN; j++) {
                const int r = m0 + place.row(i), p = n0 + place.col(j), n = KEEP ? r / C : r;
                if (r >= R || p >= P) continue;
                const int first = KEEP ? r - n * C : 0, end = KEEP ? first + 1 : C;
                const size_t at = ((size_t)n * P + p) * C;
                for (int c = first; c < end; c++)
                    put(dx + at + c, add ? get(add + at + c) + acc[i][j] : acc[i][j]);
            }
        return;
    }
    typedef ByCol<T, T::BM, T::AP, 1> LX;
    typedef ByCol<T, T::BN, T::BP, VE> LD;
    block -= dx_blocks;
    const int tiles_m = (P + T::BM - 1) / T::BM, m0 = block % tiles_m * T::BM, n0 = block / tiles_m * T::BN;
    product<T, LX, LD>(shared, Straight<T::BK>{0, R}, (R + T::BK - 1) / T::BK, PixelColumns<LX>{x, m0, P, C},
                       Cols<LD, ACT, real>(dy, y, n0, E, E, alpha), place, acc, none);
    store_tile<T, 0>(place, acc, m0, n0, P, E, Matrix{E}, nullptr, accumulate ? dw : nullptr, dw, 0.0f);
}
#endif

#ifdef EMBED_NAIVE
/* The plain formulas, one thread for each result: the second reference. grid: any; block: any. */
extern "C" __global__ void embed_projection_forward_naive_f32(
    const real *x, const float *w, real *y, int N, int P, int C, int E, int keep, float alpha)
{
    wait_for_last_launch();
    const size_t all = (size_t)N * (keep ? C : 1) * E;
    for (size_t k = (size_t)blockIdx.x * blockDim.x + threadIdx.x; k < all; k += (size_t)gridDim.x * blockDim.x) {
        const size_t r = k / E, e = k % E, n = keep ? r / C : r;
        float s = 0.0f;
        for (int p = 0; p < P; p++)
            for (int c = keep ? (int)(r % C) : 0; c < (keep ? (int)(r % C) + 1 : C); c++)
                s = fmaf(get(x + (n * P + p) * C + c), w[(size_t)p * E + e], s);
        put(y + k, act_apply(ACT, s, alpha));
    }
}

extern "C" __global__ void embed_projection_backward_naive_f32(
    const real *dy, const real *y, const real *x, const float *w, const real *add, real *dx, float *dw,
    int N, int P, int C, int E, int keep, int accumulate, float alpha)
{
    wait_for_last_launch();
    const size_t nx = dx ? (size_t)N * P * C : 0, all = nx + (size_t)P * E;
    for (size_t k = (size_t)blockIdx.x * blockDim.x + threadIdx.x; k < all; k += (size_t)gridDim.x * blockDim.x) {
        float s = 0.0f;
        if (k < nx) {
            const size_t c = k % C, p = k / C % P, n = k / C / P, r = keep ? n * C + c : n;
            for (int e = 0; e < E; e++)
                s = fmaf(fetch<1, ACT>(true, dy + r * E + e, y - dy, alpha).v[0], w[p * E + e], s);
            put(dx + k, add ? get(add + k) + s : s);
            continue;
        }
        const size_t p = (k - nx) / E, e = (k - nx) % E;
        for (size_t r = 0; r < (size_t)N * (keep ? C : 1); r++) {
            const float g = fetch<1, ACT>(true, dy + r * E + e, y - dy, alpha).v[0];
            const size_t n = keep ? r / C : r;
            for (size_t c = keep ? r % C : 0; c < (keep ? r % C + 1 : (size_t)C); c++)
                s = fmaf(get(x + (n * P + p) * C + c), g, s);
        }
        dw[k - nx] = accumulate ? dw[k - nx] + s : s;
    }
}
#endif
