/* conv2d_winograd4_wgrad: the weight gradient of 3 x 3 convolutions of stride and dilation 1 with 36 multiplications for
 * each 4 x 4 pixels instead of 144: the adjoint of conv2d_winograd4.cu, step by step through scratch memory.
 *   1  v[e,t,c] = (B' d B)[e]                      winograd4_input_f32 of conv2d_winograd4.cu, of x
 *   2  q[e,t,o] = (A g A')[e]                      winograd4_gradient_f32     g = dy * act'(y)
 *   3  part[z,e,o,c] = sum_t q[e,t,o] v[e,t,c]     winograd4_weights_f32: part z of the tiles' sum
 *   4  dw[o,:,:,c] = G' [sum_z part[z]] G          winograd4_taps_f32: once   db[o] = sum g
 * 1 to 3 take `count` tiles at a time from tile `first`; with `adds` step 3 adds to the parts of the turn before.
 * e: 36 elements, t: tiles of 4 x 4 pixels of dy, g, and the 6 x 6 of x they see, d
 * x (N,H,W,C)   dy, y (N,Ho,Wo,O), stored as REAL   dw (O,3,3,C)   db (O)   float32
 * v (36,count,CP)   q (36,count,OP)   part (parts,36,OP,CP)   rows (db_rows,OP)   float32; CP, OP: C and O rounded up to
 * multiples of 4. With POOL, dy, y and index (u8) are those after a max pool of 2 x 2, as in conv2d_winograd_wgrad.cu.
 *
 * Macros    GRADIENT, WEIGHTS, TAPS   which kernel to compile
 *           MASK  activation whose mask dy takes, or 0     POOL  0 or 1     TILE  BM,BN,BK,TM,TN,KS,BLOCKS of gemm.cuh
 * Launch    gradient  grid (ceil(OP/32), ceil(count / (8*per))), block 256: 32 channels of 8 tiles, `per` times; rows, if
 *                     not NULL, takes each block's sums of g, from row `row` on
 *           weights   grid (ceil(OP/BM) * ceil(CP/BN), 36, ceil(count/per_split)), block THREADS; per_split: of BK
 *           taps      grid O * ceil(C/32), with db + ceil(O/32) more, block 192; `accumulate` adds to dw and db
 * Edges     any padding, H, W, C, O; x, dy, count*CP and count*OP below 2^31 elements
 * Aliasing  none        Order  fixed for given turns, parts and `per`
 * Cost      2/4 N Ho Wo O 9 C operations, and v and q written and read: 4.5 (CP + OP) floats for each pixel of dy
 */
#include "winograd4.cuh"

#ifdef GRADIENT
extern "C" __global__ void __launch_bounds__(256) winograd4_gradient_f32(
    const real *__restrict__ dy, const real *__restrict__ y, const u8 *__restrict__ index, float *__restrict__ q,
    float *__restrict__ rows, int Ho, int Wo, int O, int OP, int th, int tw, int first, int count, unsigned image_mul,
    int image_shift, unsigned row_mul, int row_shift, int per, int row, float alpha)
{
    wait_for_last_launch();
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, o = (int)blockIdx.x * 32 + lane;
    const size_t pitch = (size_t)count * OP;
    float sum = 0.0f;
    for (int turn = 0; turn < per; turn++) {
        const int t = ((int)blockIdx.y * per + turn) * 8 + warp;
        if (t >= count || o >= OP) continue;
        const Spot tile(first + t, th, tw, Divisor{image_mul, image_shift}, Divisor{row_mul, row_shift});
        float g[INNER][INNER];
#if POOL
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int i = 2 * tile.i + e / 2, j = 2 * tile.j + e % 2;
            const ptrdiff_t from = ((tile.n * (Ho / 2) + i) * (Wo / 2) + j) * O + o;
            const bool exists = o < O && i < Ho / 2 && j < Wo / 2;
            const int winner = exists ? index[from] : 0;
            float value = exists ? get(dy + from) : 0.0f;
            if (MASK) value = exists ? act_mask(MASK, value, get(y + from), alpha) : 0.0f;
            sum += value;
#pragma unroll
            for (int p = 0; p < 4; p++) g[e / 2 * 2 + p / 2][e % 2 * 2 + p % 2] = winner == p ? value : 0.0f;
        }
#else
#pragma unroll
        for (int e = 0; e < INNER * INNER; e++) {
            const int i = INNER * tile.i + e / INNER, j = INNER * tile.j + e % INNER;
            const ptrdiff_t from = ((tile.n * Ho + i) * Wo + j) * O + o;
            const bool exists = o < O && i < Ho && j < Wo;
            float value = exists ? get(dy + from) : 0.0f;
            if (MASK) value = exists ? act_mask(MASK, value, get(y + from), alpha) : 0.0f;
            sum += value;
            g[e / INNER][e % INNER] = value;
        }
#endif
        float half[INNER][OUTER]; /* [column][row] */
#pragma unroll
        for (int b = 0; b < INNER; b++) transform_gradient(g[0][b], g[1][b], g[2][b], g[3][b], half[b]);
        float *const to = q + (size_t)t * OP + o;
#pragma unroll
        for (int a = 0; a < OUTER; a++) {
            float e[OUTER];
            transform_gradient(half[0][a], half[1][a], half[2][a], half[3][a], e);
#pragma unroll
            for (int b = 0; b < OUTER; b++) to[(a * OUTER + b) * pitch] = e[b];
        }
    }
    if (!rows) return;
    __shared__ float sums[8][32];
    sums[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || o >= OP) return;
#pragma unroll
    for (int w = 1; w < 8; w++) sum += sums[w][lane];
    rows[(size_t)(row + (int)blockIdx.y) * OP + o] = sum;
}
#endif

#ifdef WEIGHTS
typedef Tile<TILE> T;

extern "C" __global__ void __launch_bounds__(T::THREADS, T::BLOCKS) winograd4_weights_f32(
    const float *__restrict__ q, const float *__restrict__ v, float *part, int count, int CP, int OP, int per_split,
    int adds)
{
    wait_for_last_launch();
    __shared__ __align__(16) float shared[T::FLOATS];
    typedef ByCol<T, T::BM, T::AP, 4> LQ;
    typedef ByCol<T, T::BN, T::BP, 4> LV;
    const int down = (OP + T::BM - 1) / T::BM;
    const int m0 = (int)blockIdx.x % down * T::BM, n0 = (int)blockIdx.x / down * T::BN;
    const int first = (int)blockIdx.z * per_split, end = min(count, first + per_split);
    const size_t e = blockIdx.y;
    q += e * count * OP, v += e * count * CP, part += (blockIdx.z * (size_t)ELEMENTS + e) * OP * CP;
    const Place<T> place;
    Nothing none;
    float acc[T::TM][T::TN];
    product<T, LQ, LV>(shared, Straight<T::BK>{first, end}, (end - first + T::BK - 1) / T::BK,
                       Cols<LQ, 0>(q, q, m0, OP, OP, 0.0f), Cols<LV, 0>(v, v, n0, CP, CP, 0.0f), place, acc, none);
    store_tile<T, 0>(place, acc, m0, n0, OP, CP, Matrix{CP}, nullptr, adds ? part : nullptr, part, 0.0f);
}
#endif

#ifdef TAPS
/* A warp is a column of the 6 x 6 elements, a lane a channel c of the block's output; then a warp is a row of taps. */
extern "C" __global__ void __launch_bounds__(192) winograd4_taps_f32(
    const float *__restrict__ part, const float *__restrict__ rows, float *dw, float *db, int C, int O, int CP, int OP,
    int parts, int db_rows, int accumulate)
{
    wait_for_last_launch();
    __shared__ float half[OUTER][3][32];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, pieces = (C + 31) / 32;
    if ((int)blockIdx.x >= O * pieces) {
        const int o = ((int)blockIdx.x - O * pieces) * 32 + lane;
        float sum = 0.0f;
        if (o < O) {
            for (int r = warp; r < db_rows; r += OUTER) sum += rows[(size_t)r * OP + o];
        }
        half[warp][0][lane] = sum;
        __syncthreads();
        if (warp > 0 || o >= O) return;
#pragma unroll
        for (int w = 1; w < OUTER; w++) sum += half[w][0][lane];
        db[o] = accumulate ? db[o] + sum : sum;
        return;
    }
    const int o = (int)blockIdx.x / pieces, c = (int)blockIdx.x % pieces * 32 + lane;
    float m[OUTER] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f}, taps[3];
    if (c < C) {
        const size_t element = (size_t)OP * CP;
        const float *from = part + warp * element + (size_t)o * CP + c;
#pragma unroll 2
        for (int z = 0; z < parts; z++, from += ELEMENTS * element)
#pragma unroll
            for (int a = 0; a < OUTER; a++) m[a] += from[a * OUTER * element];
    }
    transform_to_taps(m, taps);
#pragma unroll
    for (int a = 0; a < 3; a++) half[warp][a][lane] = taps[a];
    __syncthreads();
    if (warp >= 3 || c >= C) return;
#pragma unroll
    for (int b = 0; b < OUTER; b++) m[b] = half[b][warp][lane];
    transform_to_taps(m, taps);
    float *const to = dw + ((size_t)o * 9 + 3 * warp) * C + c;
#pragma unroll
    for (int b = 0; b < 3; b++) to[b * C] = accumulate ? to[b * C] + taps[b] : taps[b];
}
#endif
