/* linear: y = act(x W^T + b), and its gradients.
 *   forward    y[n,o] = act(b[o] + sum_i x[n,i] w[o,i])
 *   backward   dh = dy * act'(y)   dx[n,i] = add[n,i] + sum_o dh[n,o] w[o,i]
 *              dw[o,i] = sum_n dh[n,o] x[n,i]   db[o] = sum_n dh[n,o]   each added to what is there if `accumulate`
 * x, dx, add (N,I)   y, dy (N,O)   real, row-major     w, dw (O,I)   b, db (O)   float32
 *
 * Macros    TILE     BM,BN,BK,TM,TN,KS,BLOCKS of gemm.cuh
 *           VI, VO   4 where I (O) is a multiple of 4, else 1: elements a load takes
 *           ACT      number of the activation; ZL   lanes along z in linear_sum_f32
 *           SPLIT    0 (if absent): a block takes a whole sum. 1: a part of it, which goes to `part`, and
 *                    linear_sum_f32 adds up. 2: a part of it, and the last block of a tile, told by counters[tile],
 *                    adds up
 *           LINEAR_FORWARD, LINEAR_BACKWARD, LINEAR_SUM, LINEAR_ROWS   which kernels to compile
 * Launch    linear_forward_f32   grid (tiles of y, splits), block THREADS; SPLIT 1: part[split][N][O] and ACT 0,
 *               SPLIT 2: part[tile][split][PART]
 *           linear_backward_f32  grid dx_blocks + tiles of dw * splits: the first blocks make dx (none if dx is NULL),
 *               the others dw, and where a tile starts a row of tiles also db; SPLIT 1: part[split][O*I + O], SPLIT 2
 *               as above
 *           linear_rows_f32      grid (ceil(O / (8 * RN)), ceil(N / RM)), block 256: the small-batch forward
 * Edges     any N, I, O: what lies outside counts as 0 and is not stored
 * Aliasing  dx may be add; nothing else overlaps
 * Order     fixed for given macros and splits, whichever block is last: equal inputs give equal bits
 * Cost      2 N I O operations forward, twice that backward
 */
#include "gemm.cuh"

#ifndef SPLIT
#define SPLIT 0
#endif

#if defined(LINEAR_FORWARD) || defined(LINEAR_BACKWARD)
typedef Tile<TILE> T;
#endif

#ifdef LINEAR_FORWARD
extern "C" __global__ void __launch_bounds__(T::THREADS, T::BLOCKS) linear_forward_f32(
    const real *__restrict__ x, const float *__restrict__ w, const float *__restrict__ b, real *__restrict__ y,
    float *part, int *counters, int N, int I, int O, int per_split, float alpha)
{
    wait_for_last_launch();
    __shared__ __align__(16) float shared[T::FLOATS];
    typedef ByRow<T, T::BM, T::AP, VI> LX;
    typedef ByRow<T, T::BN, T::BP, VI> LW;
    const int tiles_m = (N + T::BM - 1) / T::BM;
    const int m0 = (int)blockIdx.x % tiles_m * T::BM, n0 = (int)blockIdx.x / tiles_m * T::BN;
    const int first = (int)blockIdx.y * per_split;      /* per_split: a multiple of BK */
    const int end = min(I, first + per_split);
    const Place<T> place;
    Nothing none;
    float acc[T::TM][T::TN];
    product<T, LX, LW>(shared, Straight<T::BK>{first, end}, (end - first + T::BK - 1) / T::BK,
                       Rows<LX, 0, real>(x, x, m0, N, I, 0.0f), Rows<LW, 0>(w, w, n0, O, I, 0.0f), place, acc, none);
#if SPLIT == 1
    store_tile<T, 0>(place, acc, m0, n0, N, O, Matrix{O}, nullptr, nullptr, part + (size_t)blockIdx.y * N * O, 0.0f);
    return;
#elif SPLIT == 2
    part += (size_t)blockIdx.x * gridDim.y * T::PART;
    if (!join_parts<T>(part, counters + blockIdx.x, (int)blockIdx.y, (int)gridDim.y, place.slice, acc)) return;
#endif
    store_tile<T, ACT>(place, acc, m0, n0, N, O, Matrix{O}, b, nullptr, y, alpha);
}
#endif

#ifdef LINEAR_BACKWARD
extern "C" __global__ void __launch_bounds__(T::THREADS, T::BLOCKS) linear_backward_f32(
    const real *__restrict__ dy, const real *__restrict__ y, const real *__restrict__ x, const float *__restrict__ w,
    const real *add, real *dx, float *dw, float *db, float *part, int *counters, int N, int I, int O, int dx_blocks,
    int per_split, int accumulate, float alpha)
{
    wait_for_last_launch();
    __shared__ __align__(16) float shared[T::FLOATS];
    const Place<T> place;
    float acc[T::TM][T::TN];
    int block = (int)blockIdx.x;
    if (block < dx_blocks) { /* dx (N,I) = dh (N,O) w (O,I) */
        typedef ByRow<T, T::BM, T::AP, VO> LD;
        typedef ByCol<T, T::BN, T::BP, VI> LW;
        const int tiles_m = (N + T::BM - 1) / T::BM;
        const int m0 = block % tiles_m * T::BM, n0 = block / tiles_m * T::BN;
        Nothing none;
        product<T, LD, LW>(shared, Straight<T::BK>{0, O}, (O + T::BK - 1) / T::BK,
                           Rows<LD, ACT, real>(dy, y, m0, N, O, alpha), Cols<LW, 0>(w, w, n0, I, I, 0.0f), place, acc,
                           none);
        store_tile<T, 0>(place, acc, m0, n0, N, I, Matrix{I}, nullptr, add, dx, 0.0f);
        return;
    }
    /* dw (O,I) = dh^T (O,N) x (N,I) */
    typedef ByCol<T, T::BM, T::AP, VO> LD;
    typedef ByCol<T, T::BN, T::BP, VI> LX;
    block -= dx_blocks;
    const int tiles_m = (O + T::BM - 1) / T::BM, tiles = tiles_m * ((I + T::BN - 1) / T::BN), split = block / tiles;
    block -= split * tiles;
    const int m0 = block % tiles_m * T::BM, n0 = block / tiles_m * T::BN;
    const int first = split * per_split, end = min(N, first + per_split);
    ColumnSums<LD::V> bias = {n0 == 0 && db != 0, fill<LD::V>(0.0f)};
    product<T, LD, LX>(shared, Straight<T::BK>{first, end}, (end - first + T::BK - 1) / T::BK,
                       Cols<LD, ACT, real>(dy, y, m0, O, O, alpha), Cols<LX, 0, real>(x, x, n0, I, I, 0.0f), place, acc,
                       bias);
#if SPLIT == 2
    const int splits = (N + per_split - 1) / per_split;
    part += (size_t)block * splits * T::PART;
    if (bias.wanted) store_part_columns<T, LD>(shared, bias.sum, part, split);
    if (!join_parts<T>(part, counters + block, split, splits, place.slice, acc)) return;
    if (bias.wanted) join_columns<T>(part, splits, m0, O, db, accumulate ? db : nullptr);
#else
    if (SPLIT == 1) {
        dw = part + (size_t)split * ((size_t)O * I + (db ? O : 0));
        db = dw + (size_t)O * I;
        accumulate = 0;
    }
    if (bias.wanted) store_column_sums<T, LD>(shared, bias.sum, m0, O, db, accumulate ? db : nullptr);
#endif
    store_tile<T, 0>(place, acc, m0, n0, O, I, Matrix{I}, nullptr, accumulate ? dw : nullptr, dw, 0.0f);
}
#endif

#ifdef LINEAR_SUM
extern "C" __global__ void __launch_bounds__(256) linear_sum_f32(
    const float *__restrict__ part, const float *__restrict__ b, const real *older, const float *older2, real *out,
    float *out2, int count, int count2, int cols, int splits, float alpha)
{
    wait_for_last_launch();
    add_parts<ZL, ACT>(part, b, older, older2, out, out2, count, count2, cols, splits, alpha);
}
#endif

#ifdef LINEAR_ROWS
/* A warp makes RM x RN outputs straight from memory: its lanes share the sum over I and add up at the end, with no
 * barrier between. For batches so small that tiles would leave most of the card idle. */
extern "C" __global__ void __launch_bounds__(256) linear_rows_f32(
    const real *__restrict__ x, const float *__restrict__ w, const float *__restrict__ b, real *__restrict__ y,
    int N, int I, int O, float alpha)
{
    wait_for_last_launch();
    const int lane = (int)threadIdx.x % 32;
    const int n0 = (int)blockIdx.y * RM, o0 = ((int)blockIdx.x * 8 + (int)threadIdx.x / 32) * RN;
    const real *xs[RM];
    const float *ws[RN];
    float acc[RM][RN];
#pragma unroll
    for (int r = 0; r < RM; r++) xs[r] = x + (size_t)min(n0 + r, N - 1) * I;
#pragma unroll
    for (int c = 0; c < RN; c++) ws[c] = w + (size_t)min(o0 + c, O - 1) * I;
#pragma unroll
    for (int r = 0; r < RM; r++)
#pragma unroll
        for (int c = 0; c < RN; c++) acc[r][c] = 0.0f;
#pragma unroll 2
    for (int i = lane * VI; i < I; i += 32 * VI) {
        Pack<VI> xv[RM], wv[RN];
#pragma unroll
        for (int r = 0; r < RM; r++) xv[r] = load<VI>(xs[r] + i);
#pragma unroll
        for (int c = 0; c < RN; c++) wv[c] = load<VI>(ws[c] + i);
#pragma unroll
        for (int v = 0; v < VI; v++)
#pragma unroll
            for (int r = 0; r < RM; r++)
#pragma unroll
                for (int c = 0; c < RN; c++) acc[r][c] = fmaf(xv[r].v[v], wv[c].v[v], acc[r][c]);
    }
    /* each halving of the lanes also halves the outputs a lane still holds, while there is more than one */
    float *a = &acc[0][0];
    int mine = 0; /* the output this lane ends with */
#pragma unroll
    for (int half = 16, left = RM * RN; half >= 1; half /= 2) {
        const bool upper = (lane & half) != 0;
        if (left > 1) {
            left /= 2;
#pragma unroll
            for (int e = 0; e < RM * RN; e++) { /* e < left, written so that it unrolls */
                if (e >= left) continue;
                const float give = upper ? a[e] : a[e + left], keep = upper ? a[e + left] : a[e];
                a[e] = keep + __shfl_xor_sync(FULL_WARP, give, half);
            }
            mine += upper ? left : 0;
        } else {
            a[0] += __shfl_xor_sync(FULL_WARP, a[0], half);
        }
    }
    /* lanes that agree in the bits used above hold the same sum; the first of them stores it */
    const int n = n0 + mine / RN, o = o0 + mine % RN;
    if (lane % (32 / (RM * RN < 32 ? RM * RN : 32)) == 0 && n < N && o < O)
        put(y + (size_t)n * O + o, act_apply(ACT, a[0] + (b ? b[o] : 0.0f), alpha));
}
#endif

#ifdef LINEAR_NAIVE
/* The plain formulas, one thread for each result: the second reference. grid: any; block: any. */
extern "C" __global__ void linear_forward_naive_f32(
    const real *x, const float *w, const float *b, real *y, int N, int I, int O, float alpha)
{
    wait_for_last_launch();
    const size_t all = (size_t)N * O;
    for (size_t e = (size_t)blockIdx.x * blockDim.x + threadIdx.x; e < all; e += (size_t)gridDim.x * blockDim.x) {
        const size_t n = e / O, o = e % O;
        float s = b ? b[o] : 0.0f;
        for (int i = 0; i < I; i++) s = fmaf(get(x + n * I + i), w[o * I + i], s);
        put(y + e, act_apply(ACT, s, alpha));
    }
}

extern "C" __global__ void linear_backward_naive_f32(
    const real *dy, const real *y, const real *x, const float *w, const real *add, real *dx, float *dw, float *db,
    int N, int I, int O, int accumulate, float alpha)
{
    wait_for_last_launch();
    const size_t nx = dx ? (size_t)N * I : 0, nw = (size_t)O * I, all = nx + nw + (db ? O : 0);
    for (size_t e = (size_t)blockIdx.x * blockDim.x + threadIdx.x; e < all; e += (size_t)gridDim.x * blockDim.x) {
        float s = 0.0f;
        if (e < nx) {
            const size_t n = e / I, i = e % I;
            for (int o = 0; o < O; o++) {
                const float dh = fetch<1, ACT>(true, dy + n * O + o, y - dy, alpha).v[0];
                s = fmaf(dh, w[(size_t)o * I + i], s);
            }
            put(dx + e, add ? get(add + e) + s : s);
            continue;
        }
        const bool is_bias = e >= nx + nw;
        const size_t o = is_bias ? e - nx - nw : (e - nx) / I, i = is_bias ? 0 : (e - nx) % I;
        for (size_t n = 0; n < (size_t)N; n++) {
            const float dh = fetch<1, ACT>(true, dy + n * O + o, y - dy, alpha).v[0];
            s = fmaf(dh, is_bias ? 1.0f : get(x + n * I + i), s);
        }
        float *out = is_bias ? db + o : dw + (e - nx);
        *out = accumulate ? *out + s : s;
    }
}
#endif
