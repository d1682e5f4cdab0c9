/* conv2d: a convolution as a matrix product whose rows are gathered while they are loaded: no columns in memory.
 *   forward   y[n,i,j,o] = act(b[o] + sum_uvc x[n, i*sh + u*eh - top, j*sw + v*ew - left, c] w[o,u,v,c])
 *   dgrad     dx = add + the transpose of that, of g = dy * act'(y)
 *   wgrad     dw[o,u,v,c] = sum_nij g[n,i,j,o] x[n, i*sh + u*eh - top, j*sw + v*ew - left, c]   db[o] = sum_nij g
 *   POOL      y = act(b + the largest sum of each 2 x 2 window), index which of the four it was (NULL: not kept); in
 *             wgrad g is dy * act'(y) at the winner, 0 at the other three
 * x, dx, add (N,H,W,C)   y, dy (N,Ho,Wo,O), POOL: with index (N,Ho/2,Wo/2,O)   stored as REAL, index one byte
 * w, dw (O,KH,KW,C)   b, db (O)   float32
 * s: stride, e: dilation; zero outside the image
 *
 * The sum of forward and dgrad runs over the taps of the kernel, and for each tap over the channels in steps of BK. A
 * row (pixel) keeps one bit for each tap: whether that tap sees the image. So stride, padding and dilation cost
 * nothing in the loop, and at most 32 taps are possible. With a stride, dgrad handles each residue of the pixel's
 * place by itself (grid z), because each meets other taps. Places are counted from a tile's first image in 31 bits.
 * With POOL pixels come window by window, pixel 4*window + place: the four of a window are one thread's.
 * Macros    TILE   BM,BN,BK,TM,TN,KS,BLOCKS of gemm.cuh   VC, VO   4 where C (O) is a multiple of 4, else 1
 *           ACT    number of the activation          STRIDED  0 where sh = sw = 1; ZL lanes along z in conv2d_sum_f32
 *           POOL   1: the fused operator (forward, wgrad)
 *           MOMENTS   1: forward leaves the moments of y (moments.cuh): a tile is a block, its BN channels a column group
 *           SPLIT  0 (if absent): a block takes a whole sum. 1: a part of it, which goes to `part`, and conv2d_sum_f32
 *                  adds up. 2: a part of it, and the last block of a tile adds up, told by counters[tile]
 *           CONV_FORWARD, CONV_DGRAD, CONV_WGRAD, CONV_SUM   which kernel to compile
 * Launch    forward, dgrad   grid (tiles, splits) and z = sh*sw for dgrad, block THREADS; a split takes a part of the
 *               steps. SPLIT 1: part[split][rows][O or C] (forward: ACT 0; not with POOL), SPLIT 2:
 *               part[tile][split][PART]; dgrad splits only unstrided
 *           wgrad            grid (tiles of dw, splits): a split takes per_split pixels; SPLIT 1: part[split][O*K + O],
 *               SPLIT 2 as above
 * Edges     any N, H, W, C, O with N*H*W and N*Ho*Wo below 2^31; groups and more than 32 taps: conv2d_naive.cu
 * Aliasing  dx may be add; nothing else overlaps
 * Order     fixed for given macros and splits, whichever block is last: equal inputs give equal bits
 * Cost      2 N Ho Wo O KH KW C operations each
 */
#include "image.cuh"
#include "moments.cuh"

#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef POOL
#define POOL 0
#endif
#ifndef MOMENTS
#define MOMENTS 0
#endif

struct Window { /* as in the formulas */
    int KH, KW, sh, sw, top, left, eh, ew;
};
/* All three kernels end with these: sizes, the window, and what divides by Ho*Wo and Wo (dgrad: H*W and W; POOL: the
 * windows of an image and of a row). */
#define SIZES                                                                                              \
    int N, int H, int W, int C, int O, int Ho, int Wo, int KH, int KW, int sh, int sw, int top, int left,  \
        int eh, int ew, unsigned image_mul, int image_shift, unsigned row_mul, int row_shift, int per_split
#define UNPACK_SIZES                                       \
    const Window k = {KH, KW, sh, sw, top, left, eh, ew};  \
    const Divisor by_image = {image_mul, image_shift}, by_row = {row_mul, row_shift};

/* Pixel m of the output. */
struct Pixel {
    int n, i, j;
    __device__ __forceinline__ Pixel(int m, int Ho, int Wo, Divisor by_image, Divisor by_row)
    {
#if POOL
        const int window = m >> 2, rows = Ho >> 1, cols = Wo >> 1;
        n = divide(window, by_image);
        const int r = window - n * (rows * cols), row = divide(r, by_row);
        i = 2 * row + (m >> 1 & 1);
        j = 2 * (r - row * cols) + (m & 1);
#else
        n = divide(m, by_image);
        const int r = m - n * (Ho * Wo);
        i = divide(r, by_row);
        j = r - i * Wo;
#endif
    }
};

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
    const real *base; /* the tile's first image, the same for all threads */
    int away[L::COUNT];
    unsigned seen[L::COUNT];
    ptrdiff_t to_y;
    float alpha;
    int k;
    __device__ __forceinline__ Gathered(const real *m, const real *y, float alpha_)
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
    template <class Run>
    __device__ __forceinline__ typename Fetched<L, ACT_ID>::type get(int i, const Run &at) const
    {
        const bool exists = (seen[i] & at.bit) != 0 && at.c + k < at.end;
        return Fetched<L, ACT_ID>::at(exists, base + (ptrdiff_t)(away[i] + at.a_offset + at.c), to_y, alpha);
    }
};

#ifdef CONV_FORWARD
typedef Tile<TILE> T;

#if POOL
/* y = act(b + the largest of each 4 neighbouring rows), which a thread owns; index: which it was. */
__device__ __forceinline__ void store_pooled(const Place<T> &at, const float (&acc)[T::TM][T::TN], int m0, int n0,
                                             int rows, int cols, const float *b, real *y, u8 *index, float alpha)
{
    static_assert(T::VM == 4, "a thread owns whole windows");
    if (at.slice > 0) return;
    enum { VN = T::VN };
#pragma unroll
    for (int i = 0; i < T::TM; i += 4)
#pragma unroll
        for (int j = 0; j < T::TN; j += VN) {
            const int m = m0 + at.row(i), n = n0 + at.col(j);
            if (m >= rows || n >= cols) continue;
            const size_t to = (size_t)(m >> 2) * (unsigned)cols + n;
            Pack<VN> r;
            u32 place[VN];
#pragma unroll
            for (int v = 0; v < VN; v++) {
                r.v[v] = largest(acc[i][j + v], acc[i + 1][j + v], acc[i + 2][j + v], acc[i + 3][j + v], place[v]);
                r.v[v] = act_apply(ACT, r.v[v] + (b && n + v < cols ? b[n + v] : 0.0f), alpha);
            }
            if (cols % VN == 0) {
                store(y + to, r);
                if (index) store_places<VN>(index + to, place);
            } else {
#pragma unroll
                for (int v = 0; v < VN; v++)
                    if (n + v < cols) {
                        put(y + to + v, r.v[v]);
                        if (index) index[to + v] = (u8)place[v];
                    }
            }
        }
}
#endif

#if MOMENTS
/* Moments of the tile's pixels: those of each thread's rows are a row in shared memory, which is free before. */
__device__ __forceinline__ void tile_moments(const Place<T> &at, const float (&acc)[T::TM][T::TN], int m0, int n0,
                                             int pixels, int cols, const float *b, float alpha, float *shared)
{
    enum { W = T::BN, ROW = RowOf<W>::FLOATS, BAND = T::LM * T::TM };
    static_assert(T::THREADS % W == 0, "channels share all threads");
    float *mine = shared + (at.m / BAND * T::LM + at.m % BAND / T::VM) * ROW;
    if (at.slice > 0) return;
#pragma unroll
    for (int j = 0; j < T::TN; j++) {
        const float bias = b && n0 + at.col(j) < cols ? b[n0 + at.col(j)] : 0.0f;
        const Spread m = moments_of<T::TM>([&](int i) { return m0 + at.row(i) < pixels; },
                                           [&](int i) { return AS_READ(act_apply(ACT, acc[i][j] + bias, alpha)); });
        store_moments<W>(mine, at.col(j), m);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(T::THREADS, T::BLOCKS) conv2d_forward_f32(
    const real *__restrict__ x, const float *__restrict__ w, const float *__restrict__ b, real *__restrict__ y,
    u8 *__restrict__ index, float *part, int *counters, SIZES, float alpha, ROW_PLAN)
{
    wait_for_last_launch();
    UNPACK_SIZES
    enum { ROWS = MOMENTS ? T::BM / T::TM * RowOf<T::BN>::FLOATS : 0, FLOATS = (int)T::FLOATS };
    __shared__ __align__(16) float shared[FLOATS > ROWS ? FLOATS : ROWS];
    typedef ByRow<T, T::BM, T::AP, VC> LX;
    typedef ByRow<T, T::BN, T::BP, VC> LW;
    const int M = N * Ho * Wo, tiles_m = (M + T::BM - 1) / T::BM;
    const int m0 = (int)blockIdx.x % tiles_m * T::BM, n0 = (int)blockIdx.x / tiles_m * T::BN;
    const int all = k.KH * k.KW * ((C + T::BK - 1) / T::BK);
    const int first = (int)blockIdx.y * per_split, steps = min(per_split, all - first);

    const int n_first = Pixel(m0, Ho, Wo, by_image, by_row).n;
    x += (size_t)n_first * H * W * C;
    Gathered<LX, 0> rows(x, x, 0.0f);
#pragma unroll
    for (int i = 0; i < LX::COUNT; i++) {
        const int m = m0 + LX::row(i);
        const Pixel at(m, Ho, Wo, by_image, by_row);
        rows.place(i, m < M && LX::row(i) < T::BM, at.n - n_first, H, W, C, at.i * k.sh - k.top, at.j * k.sw - k.left,
                   k.KH, k.KW, k.eh, k.ew);
    }
    const int dv = k.ew * C, du = k.eh * W * C;
    Taps<T::BK> at = {0, C, 0, 0, 1u, 0, k.KW, dv, C, du - (k.KW - 1) * dv, C};
    at.skip(first);
    const Place<T> place;
    Nothing none;
    float acc[T::TM][T::TN];
    product<T, LX, LW>(shared, at, steps, rows, Rows<LW, 0>(w, w, n0, O, k.KH * k.KW * C, 0.0f), place, acc, none);
#if SPLIT == 1
    store_tile<T, 0>(place, acc, m0, n0, M, O, Matrix{O}, nullptr, nullptr, part + (size_t)blockIdx.y * M * O, 0.0f);
    return;
#elif SPLIT == 2
    part += (size_t)blockIdx.x * gridDim.y * T::PART;
    if (!join_parts<T>(part, counters + blockIdx.x, (int)blockIdx.y, (int)gridDim.y, place.slice, acc)) return;
#endif
#if POOL
    store_pooled(place, acc, m0, n0, M, O, b, y, index, alpha);
#else
    store_tile<T, ACT>(place, acc, m0, n0, M, O, Matrix{O}, b, nullptr, y, alpha);
#endif
#if MOMENTS
    UNPACK_ROW_PLAN
    __shared__ float box[2 * T::THREADS];
    if (!moments) return;
    tile_moments(place, acc, m0, n0, M, O, b, alpha, shared);
    finish_moments<T::THREADS, T::BN>(shared, T::BM / T::TM, row_plan, m0 / T::BM, n0 / T::BN, O, box);
#endif
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
    const real *__restrict__ dy, const real *__restrict__ y, const float *__restrict__ w, const real *add, real *dx,
    float *part, int *counters, SIZES, float alpha)
{
    wait_for_last_launch();
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
#if SPLIT == 1
    store_tile<T, 0>(place, acc, m0, n0, M, C, lattice, nullptr, nullptr, part + (size_t)blockIdx.y * M * C, 0.0f);
    return;
#elif SPLIT == 2
    part += (size_t)blockIdx.x * gridDim.y * T::PART;
    if (!join_parts<T>(part, counters + blockIdx.x, (int)blockIdx.y, (int)gridDim.y, place.slice, acc)) return;
#endif
    store_tile<T, 0>(place, acc, m0, n0, M, C, lattice, nullptr, add, dx, 0.0f);
}
#endif

#ifdef CONV_WGRAD
typedef Tile<TILE> T;

/* Columns of the gathered matrix (ByCol L): column (u,v,c) of row (pixel) k is x where tap (u,v) of pixel k looks. */
template <class L> struct Seen {
    const real *p;
    int H, W, C, Ho, Wo, sh, sw, row, col; /* row, col: where this thread's tap looks for pixel (0,0) */
    Divisor by_image, by_row;
    __device__ __forceinline__ Seen(const real *x, int first, int H_, int W_, int C_, int Ho_, int Wo_,
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
        const Pixel pixel(at.c + k, Ho, Wo, by_image, by_row);
        const int a = pixel.i * sh, b = pixel.j * sw;
        const bool inside = at.c + k < at.end && (unsigned)(a + row) < (unsigned)H && (unsigned)(b + col) < (unsigned)W;
        return fetch<L::V, 0>(inside, p + ((ptrdiff_t)pixel.n * (H * W) + a * W + b) * C, 0, 0.0f);
    }
};

#if POOL
/* The gradients of the sums (ByCol L; columns o, rows the pixels window by window): dy * act'(y) at the winner, else
 * 0. */
template <class L> struct Winners {
    const real *p;
    const u8 *index;
    unsigned pitch;
    ptrdiff_t to_y;
    float alpha;
    __device__ __forceinline__ Winners(const real *dy, const real *y, const u8 *index_, int first, int O, float alpha_)
        : p(dy + min(first + L::col(), O - L::V)), index(index_ + min(first + L::col(), O - L::V)), pitch((unsigned)O),
          to_y(y - dy), alpha(alpha_)
    {
    }
    template <class Run> __device__ __forceinline__ Pack<L::V> get(int k, const Run &at) const
    {
        const unsigned pixel = (unsigned)(at.c + k);
        const size_t from = (size_t)(pixel >> 2) * pitch;
        const bool exists = at.c + k < at.end;
        Pack<L::V> g = fetch<L::V, ACT>(exists, p + from, to_y, alpha);
        const u32 places = !exists ? 0 : L::V == 4 ? *reinterpret_cast<const u32 *>(index + from) : index[from];
#pragma unroll
        for (int j = 0; j < L::V; j++)
            if ((places >> 8 * j & 255) != (pixel & 3)) g.v[j] = 0.0f;
        return g;
    }
};
#endif

extern "C" __global__ void __launch_bounds__(T::THREADS, T::BLOCKS) conv2d_wgrad_f32(
    const real *__restrict__ dy, const real *__restrict__ y, const u8 *__restrict__ index, const real *__restrict__ x,
    float *dw, float *db, float *part, int *counters, SIZES, int accumulate, float alpha)
{
    wait_for_last_launch();
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
#if POOL
    const Winners<LD> gradients(dy, y, index, m0, O, alpha);
#else
    const Cols<LD, ACT, real> gradients(dy, y, m0, O, O, alpha);
#endif
    product<T, LD, LX>(shared, Straight<T::BK>{first, end}, (end - first + T::BK - 1) / T::BK, gradients,
                       Seen<LX>(x, n0, H, W, C, Ho, Wo, k, by_image, by_row), place, acc, bias);
#if SPLIT == 1
    dw = part + blockIdx.y * ((size_t)O * K + (db ? O : 0));
    if (bias.wanted) store_column_sums<T, LD>(shared, bias.sum, m0, O, dw + (size_t)O * K, nullptr);
    store_tile<T, 0>(place, acc, m0, n0, O, K, Matrix{K}, nullptr, nullptr, dw, 0.0f);
#else
#if SPLIT == 2
    part += (size_t)blockIdx.x * gridDim.y * T::PART;
    if (bias.wanted) store_part_columns<T, LD>(shared, bias.sum, part, (int)blockIdx.y);
    if (!join_parts<T>(part, counters + blockIdx.x, (int)blockIdx.y, (int)gridDim.y, place.slice, acc)) return;
    if (bias.wanted) join_columns<T>(part, (int)gridDim.y, m0, O, db, accumulate ? db : nullptr);
#else
    if (bias.wanted) store_column_sums<T, LD>(shared, bias.sum, m0, O, db, accumulate ? db : nullptr);
#endif
    store_tile<T, 0>(place, acc, m0, n0, O, K, Matrix{K}, nullptr, accumulate ? dw : nullptr, dw, 0.0f);
#endif
}
#endif

#ifdef CONV_SUM
extern "C" __global__ void __launch_bounds__(256) conv2d_sum_f32(
    const float *__restrict__ part, const float *__restrict__ b, const real *older, const float *older2, real *out,
    float *out2, int count, int count2, int cols, int splits, float alpha)
{
    wait_for_last_launch();
    add_parts<ZL, ACT>(part, b, older, older2, out, out2, count, count2, cols, splits, alpha);
}
#endif
