/* conv2d: a convolution as a matrix product whose rows are gathered while they are loaded: no columns in memory.
 *   forward   y[n,i,j,o] = act(b[o] + sum_uvc x[n, i*sh + u*eh - top, j*sw + v*ew - left, c] w[o,u,v,c])
 *   dgrad     dx = add + the transpose of that, of g = dy * act'(y)
 *   wgrad     dw[o,u,v,c] = sum_nij g[n,i,j,o] x[n, i*sh + u*eh - top, j*sw + v*ew - left, c]   db[o] = sum_nij g
 * x, dx, add (N,H,W,C)   w, dw (O,KH,KW,C)   b, db (O)   y, dy (N,Ho,Wo,O)   float32
 * s: stride, e: dilation; zero outside the image
 *
 * The sum of forward and dgrad runs over the taps of the kernel, and for each tap over the channels in steps of BK. A
 * row (pixel) keeps one bit for each tap: whether that tap sees the image. So stride, padding and dilation cost
 * nothing in the loop, and at most 32 taps are possible. With a stride, dgrad handles each residue of the pixel's
 * place by itself (grid z), because each meets other taps. Places are counted from a tile's first image in 31 bits.
 * Macros    TILE   BM,BN,BK,TM,TN,KS,BLOCKS of gemm.cuh   VC, VO   4 where C (O) is a multiple of 4, else 1
 *           ACT    number of the activation          STRIDED  0 where sh = sw = 1; ZL lanes along z in conv2d_sum_f32
 *           CONV_FORWARD, CONV_DGRAD, CONV_WGRAD, CONV_SUM   which kernel to compile
 * Launch    forward, dgrad   grid (tiles, splits) and z = sh*sw for dgrad, block THREADS; a split takes a part of the
 *               steps and writes part[split][rows][O or C] (forward: ACT 0), conv2d_sum_f32 adds up;
 *               dgrad splits only unstrided
 *           wgrad            grid (tiles of dw, splits): a split takes per_split pixels; part[split][O*K + O]
 * Edges     any N, H, W, C, O with N*H*W and N*Ho*Wo below 2^31; groups and more than 32 taps: conv2d_naive.cu
 * Aliasing  dx may be add; nothing else overlaps
 * Order     fixed for given macros and splits: equal inputs give equal bits
 * Cost      2 N Ho Wo O KH KW C operations each
 */
#include "gemm.cuh"

struct Window { /* as in the formulas */
    int KH, KW, sh, sw, top, left, eh, ew;
};
/* All three kernels end with these: sizes, the window, and what divides by Ho*Wo and Wo (dgrad: H*W and W). */
#define SIZES                                                                                              \
    int N, int H, int W, int C, int O, int Ho, int Wo, int KH, int KW, int sh, int sw, int top, int left,  \
        int eh, int ew, unsigned image_mul, int image_shift, unsigned row_mul, int row_shift, int per_split
#define UNPACK_SIZES                                       \
    const Window k = {KH, KW, sh, sw, top, left, eh, ew};  \
    const Divisor by_image = {image_mul, image_shift}, by_row = {row_mul, row_shift};

/* The walk over taps and channels. Along a row of taps the matrices move by a_v, b_v; from its end to the next by
 * a_u, b_u. */
template <int BK> struct Taps {
    int c, end, a_offset, b_offset;
    unsigned bit;
    int v, NV, a_v, b_v, a_u, b_u;
    __device__ __forceinline__ void next()
    {
        c += BK;
        if (c < end) return;
        c = 0;
        bit <<= 1;
        if (++v < NV) {
            a_offset += a_v;
            b_offset += b_v;
        } else {
            v = 0;
            a_offset += a_u;
            b_offset += b_u;
        }
    }
    /* start `step` steps further on */
    __device__ __forceinline__ void skip(int step)
    {
        const int chunks = (end + BK - 1) / BK, tap = step / chunks, u = tap / NV;
        v = tap - u * NV;
        c = (step - tap * chunks) * BK;
        bit = 1u << tap;
        a_offset += v * a_v + u * (a_u + (NV - 1) * a_v);
        b_offset += v * b_v + u * (b_u + (NV - 1) * b_v);
    }
};

/* Rows gathered from an image (ByRow L): where the first tap looks, and a bit for each tap that sees the image. */
template <class L, int ACT_ID> struct Gathered {
    const float *base; /* the tile's first image, the same for all threads */
    int away[L::COUNT];
    unsigned seen[L::COUNT];
    ptrdiff_t to_y;
    float alpha;
    int k;
    __device__ __forceinline__ Gathered(const float *m, const float *y, float alpha_)
        : base(m), to_y(y - m), alpha(alpha_), k(L::k())
    {
    }
    /* Row i looks at image n (from base) of (H,W,C); its tap (u,v) at (row + u*du, col + v*dv), u < NU, v < NV. */
    __device__ __forceinline__ void place(int i, bool exists, int n, int H, int W, int C, int row, int col, int NU,
                                          int NV, int du, int dv)
    {
        unsigned columns = 0, bits = 0;
        for (int v = 0; v < NV; v++) columns |= (unsigned)((unsigned)(col + v * dv) < (unsigned)W) << v;
        for (int u = 0; u < NU; u++)
            if ((unsigned)(row + u * du) < (unsigned)H) bits |= columns << (u * NV);
        seen[i] = exists ? bits : 0;
        away[i] = ((n * H + row) * W + col) * C + k;
    }
    template <class Run> __device__ __forceinline__ Pack<L::V> get(int i, const Run &at) const
    {
        const bool exists = (seen[i] & at.bit) != 0 && at.c + k < at.end;
        return fetch<L::V, ACT_ID>(exists, base + (ptrdiff_t)(away[i] + at.a_offset + at.c), to_y, alpha);
    }
};

#ifdef CONV_FORWARD
typedef Tile<TILE> T;

extern "C" __global__ void __launch_bounds__(T::THREADS, T::BLOCKS) conv2d_forward_f32(
    const float *__restrict__ x, const float *__restrict__ w, const float *__restrict__ b, float *__restrict__ y,
    float *__restrict__ part, SIZES, float alpha)
{
    UNPACK_SIZES
    __shared__ __align__(16) float shared[T::FLOATS];
    typedef ByRow<T, T::BM, T::AP, VC> LX;
    typedef ByRow<T, T::BN, T::BP, VC> LW;
    const int M = N * Ho * Wo, tiles_m = (M + T::BM - 1) / T::BM;
    const int m0 = (int)blockIdx.x % tiles_m * T::BM, n0 = (int)blockIdx.x / tiles_m * T::BN;
    const int all = k.KH * k.KW * ((C + T::BK - 1) / T::BK);
    const int first = (int)blockIdx.y * per_split, steps = min(per_split, all - first);

    const int n_first = divide(m0, by_image);
    x += (size_t)n_first * H * W * C;
    Gathered<LX, 0> rows(x, x, 0.0f);
#pragma unroll
    for (int i = 0; i < LX::COUNT; i++) {
        const int m = m0 + LX::row(i), n = divide(m, by_image), r = m - n * (Ho * Wo), p = divide(r, by_row);
        const int row = p * k.sh - k.top, col = (r - p * Wo) * k.sw - k.left;
        rows.place(i, m < M && LX::row(i) < T::BM, n - n_first, H, W, C, row, col, k.KH, k.KW, k.eh, k.ew);
    }
    const int dv = k.ew * C, du = k.eh * W * C;
    Taps<T::BK> at = {0, C, 0, 0, 1u, 0, k.KW, dv, C, du - (k.KW - 1) * dv, C};
    at.skip(first);
    const Place<T> place;
    Nothing none;
    float acc[T::TM][T::TN];
    product<T, LX, LW>(shared, at, steps, rows, Rows<LW, 0>(w, w, n0, O, k.KH * k.KW * C, 0.0f), place, acc, none);
    if (part) part += (size_t)blockIdx.y * M * O;
    store_tile<T, ACT>(place, acc, m0, n0, M, O, Matrix{O}, part ? nullptr : b, nullptr, part ? part : y,
                       alpha);
}
#endif

#ifdef CONV_DGRAD
typedef Tile<TILE> T;

struct Lattice { /* rows of dx that lie sh, sw apart: row m is pixel (first_i + i*sh, first_j + j*sw) of image n */
    enum { BY_ROW = STRIDED };
    int rows, cols, first_i, first_j, sh, sw, H, W, C;
    Divisor by_image, by_row;
    __device__ __forceinline__ void find(int m, int &n, int &i, int &j) const
    {
#if STRIDED
        n = m / (rows * cols);
        const int r = m - n * (rows * cols);
        i = r / cols;
        j = r - i * cols;
#else
        n = divide(m, by_image);
        const int r = m - n * (rows * cols);
        i = divide(r, by_row);
        j = r - i * cols;
#endif
    }
    __device__ __forceinline__ size_t operator()(int m) const
    {
#if STRIDED
        int n, i, j;
        find(m, n, i, j);
        return (((size_t)n * H + first_i + i * sh) * W + first_j + j * sw) * C;
#else
        return (size_t)m * (unsigned)C;
#endif
    }
};

/* Along one axis: the places of `size` whose (place + before) has residue b modulo s, and the taps u they meet:
 * u = first_tap + t*tap_step, t < taps, tap t looking at output (place + before) / s - first_out - t*out_step. */
struct Axis {
    int first, count, first_tap, tap_step, taps, first_out, out_step;
    __device__ __forceinline__ Axis(int b, int size, int before, int s, int d, int kernel)
    {
        first = (b - before % s + s) % s;
        count = first < size ? (size - first + s - 1) / s : 0;
        first_tap = 0;
        while (first_tap < kernel && first_tap * d % s != b) first_tap++;
        tap_step = 1;
        while (tap_step * d % s != 0) tap_step++;
        taps = first_tap < kernel ? (kernel - first_tap + tap_step - 1) / tap_step : 0;
        first_out = (first_tap * d - b) / s;
        out_step = tap_step * d / s;
    }
};

extern "C" __global__ void __launch_bounds__(T::THREADS, T::BLOCKS) conv2d_dgrad_f32(
    const float *__restrict__ dy, const float *__restrict__ y, const float *__restrict__ w, const float *add, float *dx,
    float *__restrict__ part, SIZES, float alpha)
{
    UNPACK_SIZES
    __shared__ __align__(16) float shared[T::FLOATS];
    typedef ByRow<T, T::BM, T::AP, VO> LD;
    typedef ByCol<T, T::BN, T::BP, VC> LW;
#if STRIDED
    const Axis ai((int)blockIdx.z / k.sw, H, k.top, k.sh, k.eh, k.KH);
    const Axis aj((int)blockIdx.z % k.sw, W, k.left, k.sw, k.ew, k.KW);
    const Lattice lattice = {ai.count, aj.count, ai.first, aj.first, k.sh, k.sw, H, W, C, by_image, by_row};
    const int NU = ai.taps, NV = aj.taps, row0 = (ai.first + k.top) / k.sh - ai.first_out,
              col0 = (aj.first + k.left) / k.sw - aj.first_out, du = ai.out_step, dv = aj.out_step;
    const int tap0 = ai.first_tap * k.KW + aj.first_tap, tap_u = ai.tap_step * k.KW, tap_v = aj.tap_step;
#else
    const Lattice lattice = {H, W, 0, 0, 1, 1, H, W, C, by_image, by_row};
    const int NU = k.KH, NV = k.KW, row0 = k.top, col0 = k.left, du = k.eh, dv = k.ew;
    const int tap0 = 0, tap_u = k.KW, tap_v = 1;
#endif
    const int M = N * lattice.rows * lattice.cols, tiles_m = (M + T::BM - 1) / T::BM;
    if ((int)blockIdx.x >= tiles_m * ((C + T::BN - 1) / T::BN)) return; /* the other residues have more pixels */
    const int m0 = (int)blockIdx.x % tiles_m * T::BM, n0 = (int)blockIdx.x / tiles_m * T::BN;
    const int all = NU * NV * ((O + T::BK - 1) / T::BK);
    const int first = (int)blockIdx.y * per_split, steps = min(per_split, all - first);

    int n_first, p_first, q_first;
    lattice.find(m0, n_first, p_first, q_first);
    const size_t images = (size_t)n_first * Ho * Wo * O;
    Gathered<LD, ACT> rows(dy + images, y + images, alpha);
#pragma unroll
    for (int i = 0; i < LD::COUNT; i++) {
        const int m = m0 + LD::row(i);
        int n, p, q;
        lattice.find(m, n, p, q);
        rows.place(i, m < M && LD::row(i) < T::BM, n - n_first, Ho, Wo, O, row0 + p, col0 + q, NU, NV, -du, -dv);
    }
    const int a_v = -dv * O, a_u = -du * Wo * O - (NV - 1) * a_v;
    const int b_v = tap_v * C, b_u = tap_u * C - (NV - 1) * b_v;
    Taps<T::BK> at = {0, O, 0, tap0 * C, 1u, 0, NV, a_v, b_v, a_u, b_u};
    if (steps > 0) at.skip(first);
    const Place<T> place;
    Nothing none;
    float acc[T::TM][T::TN];
    product<T, LD, LW>(shared, at, steps, rows, Cols<LW, 0>(w, w, n0, C, k.KH * k.KW * C, 0.0f), place, acc, none);
    if (part) part += (size_t)blockIdx.y * M * C;
    store_tile<T, 0>(place, acc, m0, n0, M, C, lattice, nullptr, part ? nullptr : add, part ? part : dx, 0.0f);
}
#endif

#ifdef CONV_WGRAD
typedef Tile<TILE> T;

/* Columns of the gathered matrix (ByCol L): column (u,v,c) of row (pixel) k is x where tap (u,v) of pixel k looks. */
template <class L> struct Seen {
    const float *p;
    int H, W, C, Ho, Wo, sh, sw, row, col; /* row, col: where this thread's tap looks for pixel (0,0) */
    Divisor by_image, by_row;
    __device__ __forceinline__ Seen(const float *x, int first, int H_, int W_, int C_, int Ho_, int Wo_,
                                    const Window &k, Divisor by_image_, Divisor by_row_)
        : H(H_), W(W_), C(C_), Ho(Ho_), Wo(Wo_), sh(k.sh), sw(k.sw), by_image(by_image_), by_row(by_row_)
    {
        const int column = min(first + L::col(), k.KH * k.KW * C - L::V), tap = column / C;
        const int c = column - tap * C, u = tap / k.KW, v = tap - u * k.KW;
        row = u * k.eh - k.top;
        col = v * k.ew - k.left;
        p = x + ((ptrdiff_t)row * W + col) * C + c;
    }
    template <class Run> __device__ __forceinline__ Pack<L::V> get(int k, const Run &at) const
    {
        const int pixel = at.c + k, n = divide(pixel, by_image), r = pixel - n * (Ho * Wo), i = divide(r, by_row);
        const int a = i * sh, b = (r - i * Wo) * sw;
        const bool inside = pixel < at.end && (unsigned)(a + row) < (unsigned)H && (unsigned)(b + col) < (unsigned)W;
        return fetch<L::V, 0>(inside, p + ((ptrdiff_t)n * (H * W) + a * W + b) * C, 0, 0.0f);
    }
};

extern "C" __global__ void __launch_bounds__(T::THREADS, T::BLOCKS) conv2d_wgrad_f32(
    const float *__restrict__ dy, const float *__restrict__ y, const float *__restrict__ x, float *dw, float *db,
    float *__restrict__ part, SIZES, int accumulate, float alpha)
{
    UNPACK_SIZES
    __shared__ __align__(16) float shared[T::FLOATS];
    typedef ByCol<T, T::BM, T::AP, VO> LD;
    typedef ByCol<T, T::BN, T::BP, VC> LX;
    const int K = k.KH * k.KW * C, tiles_m = (O + T::BM - 1) / T::BM;
    const int m0 = (int)blockIdx.x % tiles_m * T::BM, n0 = (int)blockIdx.x / tiles_m * T::BN;
    const int first = (int)blockIdx.y * per_split, end = min(N * Ho * Wo, first + per_split); /* a multiple of BK */
    const Place<T> place;
    ColumnSums<LD::V> bias = {n0 == 0 && db != 0, fill<LD::V>(0.0f)};
    float acc[T::TM][T::TN];
    product<T, LD, LX>(shared, Straight<T::BK>{first, end}, (end - first + T::BK - 1) / T::BK,
                       Cols<LD, ACT>(dy, y, m0, O, O, alpha), Seen<LX>(x, n0, H, W, C, Ho, Wo, k, by_image, by_row),
                       place, acc, bias);
    if (part) {
        dw = part + blockIdx.y * ((size_t)O * K + (db ? O : 0));
        db = dw + (size_t)O * K;
    }
    const bool older = accumulate && !part;
    if (bias.wanted) store_column_sums<T, LD>(shared, bias.sum, m0, O, db, older ? db : nullptr);
    store_tile<T, 0>(place, acc, m0, n0, O, K, Matrix{K}, nullptr, older ? dw : nullptr, dw, 0.0f);
}
#endif

#ifdef CONV_SUM
extern "C" __global__ void __launch_bounds__(256) conv2d_sum_f32(
    const float *__restrict__ part, const float *__restrict__ b, const float *older, const float *older2, float *out,
    float *out2, int count, int count2, int cols, int splits, float alpha)
{
    add_parts<ZL, ACT>(part, b, older, older2, out, out2, count, count2, cols, splits, alpha);
}
#endif
