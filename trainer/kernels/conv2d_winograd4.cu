/* conv2d_winograd4: 3 x 3 convolutions of stride and dilation 1 with 36 multiplications for 16 results instead of 144:
 * Winograd's F(4x4, 3x3) (winograd4.cuh), step by step through scratch memory.
 *   1  u[e,c,o] = (G w G')[e]                winograd4_filter_f32: once
 *   2  v[e,t,c] = (B' d B)[e]                winograd4_input_f32    | for `count` tiles from tile `first`, so that u, v
 *   3  m[e,t,o] = sum_c v[e,t,c] u[e,c,o]    winograd4_product_f32  | and m need little memory; v and m may then also
 *   4  out = act(b + A' m A)                 winograd4_output_f32   | stay in the card's cache
 * e: 36 elements, t: tiles of 4 x 4 results, d: the 6 x 6 inputs that a tile sees
 *   forward   out = act(b + conv(x, w))      dgrad   out = add + conv(dy * act'(y), w turned by 180 degrees)
 * in, y (N,H,W,C)   out, add (N,Ho,Wo,O), stored as REAL     w (O,3,3,C) or, for dgrad, (C,3,3,O)   b (O)   float32
 * u (36,CP,OP)   v (36,count,CP)   m (36,count,OP)   float32; CP, OP: C and O rounded up to multiples of 4, zeros there
 * With POOL a max pool of 2 x 2 stands between the sum and act, as in conv2d_winograd.cu.
 *
 * Macros    FILTER, INPUT, PRODUCT, OUTPUT   which kernel to compile
 *           TURNED  0 or 1: filters for dgrad              MASK  activation whose mask the input takes (y like in), or 0
 *           POOL    0; OUTPUT 1: forward; INPUT 2: dgrad   ACT   activation of the output
 *           TILE    BM,BN,BK,TM,TN,KS,BLOCKS of gemm.cuh   CUT   1: `output` adds parts of products, see Launch
 *           MOMENTS  OUTPUT 1: the moments of out are left as well (moments.cuh), 32 channels are a column group
 * Launch    filter   grid ceil(OP/8) * ceil(CP/32) or, turned, ceil(OP/32) * ceil(CP/8), block 256
 *           input    grid ceil(count*CP / 256), block 256: a thread transforms one channel of one tile
 *           product  grid whole + parts * (36 * each - whole), block THREADS; each: ceil(count/BM) * ceil(OP/BN) blocks
 *                    make an element. The blocks from number `whole` on, which would not fill the card, are in `parts`
 *                    parts of per_part channels (of BK); the later parts go to part[parts-1][36*each-whole][BM][BN],
 *                    which `output` adds
 *           output   grid ceil(count*OP / 256), block 256: a thread makes one channel of one tile. MOMENTS: grid
 *                    (ceil(O/32), ceil(count / (8*per))), a thread makes one channel of `per` tiles, 8 apart
 * Edges     any padding (POOL 2: padding 1), H, W, C, O; in, out, count*CP and count*OP below 2^31 elements
 * Aliasing  out may be add        Order  fixed for given tile, whole and parts
 * Cost      2/4 N Ho Wo O 9 C operations, and v and m written and read: 4.5 (CP + OP) floats for each result's pixel
 */
#include "winograd4.cuh"
#include "moments.cuh"

#ifndef MOMENTS
#define MOMENTS 0
#endif

#ifdef FILTER
/* A block makes 32 x 8 filters. TURNED, o runs along the lanes in w as in u; else c does in w, and they change places
 * in shared memory, 6 elements at a time. */
extern "C" __global__ void __launch_bounds__(256) winograd4_filter_f32(
    const float *__restrict__ w, float *__restrict__ u, int C, int O, int CP, int OP)
{
    wait_for_last_launch();
    enum { WIDE = TURNED ? 32 : 8, HIGH = 256 / WIDE }; /* outputs, channels */
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32, across = (OP + WIDE - 1) / WIDE;
    const int o0 = (int)blockIdx.x % across * WIDE, c0 = (int)blockIdx.x / across * HIGH;
    const int c = c0 + (TURNED ? row : lane), o = o0 + (TURNED ? lane : row);
    float g[9], t[3][OUTER];
#pragma unroll
    for (int tap = 0; tap < 9; tap++) {
        const size_t at = TURNED ? ((size_t)c * 9 + 8 - tap) * O + o : ((size_t)o * 9 + tap) * C + c;
        g[tap] = c < C && o < O ? w[at] : 0.0f;
    }
#pragma unroll
    for (int b = 0; b < 3; b++) transform_taps(g[b], g[3 + b], g[6 + b], t[b]);
    const int to_c = c0 + (int)threadIdx.x / WIDE, to_o = o0 + (int)threadIdx.x % WIDE;
    const bool stores = to_c < CP && to_o < OP;
    u += (size_t)to_c * OP + to_o;
#pragma unroll
    for (int a = 0; a < OUTER; a++) {
        float e[OUTER];
        transform_taps(t[0][a], t[1][a], t[2][a], e);
#if !TURNED
        __shared__ float tile[OUTER][HIGH][WIDE + 1];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < OUTER; k++) tile[k][lane][row] = e[k];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < OUTER; k++) e[k] = tile[k][(int)threadIdx.x / WIDE][(int)threadIdx.x % WIDE];
#endif
        if (stores) {
#pragma unroll
            for (int k = 0; k < OUTER; k++) u[(size_t)(a * OUTER + k) * CP * OP] = e[k];
        }
    }
}
#endif

#ifdef INPUT
extern "C" __global__ void __launch_bounds__(256) winograd4_input_f32(
    const real *__restrict__ in, const real *__restrict__ y, const u8 *__restrict__ index, float *__restrict__ v, int H,
    int W, int C, int CP, int top, int left, int th, int tw, int first, int count, unsigned image_mul, int image_shift,
    unsigned row_mul, int row_shift, unsigned channel_mul, int channel_shift, float alpha)
{
    wait_for_last_launch();
    const int at = (int)(blockIdx.x * 256 + threadIdx.x), t = divide(at, Divisor{channel_mul, channel_shift});
    if (t >= count) return;
    const int c = at - t * CP;
    const Spot tile(first + t, th, tw, Divisor{image_mul, image_shift}, Divisor{row_mul, row_shift});
    float d[ELEMENTS];
#if POOL == 2
    /* The 4 x 4 windows that the patch meets: of the first it has the last pixel. */
    float window[16];
    int winner[16];
#pragma unroll
    for (int e = 0; e < 16; e++) {
        const int i = 2 * tile.i - 1 + e / 4, j = 2 * tile.j - 1 + e % 4;
        const ptrdiff_t from = ((tile.n * (H / 2) + i) * (W / 2) + j) * C + c;
        const bool exists = c < C && (unsigned)i < (unsigned)H / 2 && (unsigned)j < (unsigned)W / 2;
        winner[e] = exists ? index[from] : 0;
        window[e] = exists ? get(in + from) : 0.0f;
        if (MASK) window[e] = exists ? act_mask(MASK, window[e], get(y + from), alpha) : 0.0f;
    }
#pragma unroll
    for (int e = 0; e < ELEMENTS; e++) {
        const int a = e / OUTER + 1, b = e % OUTER + 1, from = a / 2 * 4 + b / 2;
        d[e] = winner[from] == a % 2 * 2 + b % 2 ? window[from] : 0.0f;
    }
#else
    const int i = INNER * tile.i - top, j = INNER * tile.j - left;
#pragma unroll
    for (int e = 0; e < ELEMENTS; e++) {
        const int a = e / OUTER, b = e % OUTER;
        const ptrdiff_t from = ((tile.n * H + i + a) * W + j + b) * C + c;
        const bool exists = c < C && (unsigned)(i + a) < (unsigned)H && (unsigned)(j + b) < (unsigned)W;
        d[e] = exists ? get(in + from) : 0.0f;
        if (MASK) d[e] = exists ? act_mask(MASK, d[e], get(y + from), alpha) : 0.0f;
    }
#endif
    transform_patch(d);
    const size_t pitch = (size_t)count * CP;
#pragma unroll
    for (int e = 0; e < ELEMENTS; e++) v[e * pitch + at] = d[e];
}
#endif

#ifdef PRODUCT
typedef Tile<TILE> T;

extern "C" __global__ void __launch_bounds__(T::THREADS, T::BLOCKS) winograd4_product_f32(
    const float *__restrict__ v, const float *__restrict__ u, float *__restrict__ m, float *__restrict__ part,
    int count, int CP, int OP, int whole, int parts, int per_part)
{
    wait_for_last_launch();
    __shared__ __align__(16) float shared[T::FLOATS];
    typedef ByRow<T, T::BM, T::AP, 4> LV;
    typedef ByCol<T, T::BN, T::BP, 4> LU;
    const int down = (count + T::BM - 1) / T::BM, each = down * ((OP + T::BN - 1) / T::BN);
    const int beyond = max(0, (int)blockIdx.x - whole), z = beyond % parts;
    const int block = min((int)blockIdx.x, whole) + beyond / parts, in = block % each;
    const int m0 = in % down * T::BM, n0 = in / down * T::BN;
    const int first = (int)blockIdx.x < whole ? 0 : z * per_part;
    const int end = (int)blockIdx.x < whole ? CP : min(CP, first + per_part);
    const size_t e = block / each;
    v += e * count * CP, u += e * CP * OP, m += e * count * OP;
    const Place<T> place;
    Nothing none;
    float acc[T::TM][T::TN];
    product<T, LV, LU>(shared, Straight<T::BK>{first, end}, (end - first + T::BK - 1) / T::BK,
                       Rows<LV, 0>(v, v, m0, count, CP, 0.0f), Cols<LU, 0>(u, u, n0, OP, OP, 0.0f), place, acc, none);
    const bool later = z > 0;
    if (later) m = part + ((size_t)(z - 1) * (ELEMENTS * each - whole) + block - whole) * (T::BM * T::BN);
    store_tile<T, 0>(place, acc, later ? 0 : m0, later ? 0 : n0, later ? T::BM : count, later ? T::BN : OP,
                     Matrix{later ? T::BN : OP}, nullptr, nullptr, m, 0.0f);
}
#endif

#ifdef OUTPUT
/* Where a product's later parts lie, see `product`. */
struct Cut { int whole, parts, each, down, log_bm, log_bn; };

/* The 4 x 4 sums of tile t and output o, which are at `at` in each element of m. */
__device__ __forceinline__ void sums_of(const float *m, const float *part, size_t pitch, int at, int t, int o,
                                        const Cut &cut, float (&r)[INNER][INNER])
{
    float e[ELEMENTS], half[INNER][OUTER];
#pragma unroll
    for (int k = 0; k < ELEMENTS; k++) e[k] = m[k * pitch + at];
#if CUT
    /* The block of element 0 that made this sum, from the first that is cut on, and the sum's place in the block. */
    const int block = (o >> cut.log_bn) * cut.down + (t >> cut.log_bm) - cut.whole;
    const int size = 1 << (cut.log_bm + cut.log_bn);
    const int inside = ((t & ((1 << cut.log_bm) - 1)) << cut.log_bn) + (o & ((1 << cut.log_bn) - 1));
#pragma unroll
    for (int k = 0; k < ELEMENTS; k++) {
        const int here = block + k * cut.each;
        for (int z = 1; z < cut.parts && here >= 0; z++)
            e[k] += part[((size_t)(z - 1) * (ELEMENTS * cut.each - cut.whole) + here) * size + inside];
    }
#endif
#pragma unroll
    for (int b = 0; b < OUTER; b++) {
        const float column[OUTER] = {e[b], e[6 + b], e[12 + b], e[18 + b], e[24 + b], e[30 + b]};
        float y[INNER];
        transform_back(column, y);
#pragma unroll
        for (int a = 0; a < INNER; a++) half[a][b] = y[a];
    }
#pragma unroll
    for (int a = 0; a < INNER; a++) transform_back(half[a], r[a]);
}

#if MOMENTS
#define BOUNDS 256, 3 /* registers for what a thread keeps from tile to tile */
#else
#define BOUNDS 256
#endif

extern "C" __global__ void __launch_bounds__(BOUNDS) winograd4_output_f32(
    const float *__restrict__ m, const float *__restrict__ part, const float *__restrict__ bias, const real *add,
    real *out, u8 *__restrict__ index, int Ho, int Wo, int O, int OP, int th, int tw, int first, int count,
    unsigned image_mul, int image_shift, unsigned row_mul, int row_shift, unsigned channel_mul, int channel_shift,
    int whole, int parts, int each, int down, int log_bm, int log_bn, float alpha, int per, ROW_PLAN)
{
    wait_for_last_launch();
    const Cut cut = {whole, parts, each, down, log_bm, log_bn};
    const size_t pitch = (size_t)count * OP;
#if MOMENTS
    enum { W = 32, ROW = RowOf<W>::FLOATS };
    __shared__ float rows[8 * ROW], box[512];
    const int lane = (int)threadIdx.x % W, warp = (int)threadIdx.x / W, o = (int)blockIdx.x * W + lane;
    Spread all = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int k = 0; k < per; k++) {
        const int t = ((int)blockIdx.y * per + k) * 8 + warp, at = t * OP + o;
        if (t >= count || o >= O) break;
#else
    const int at = (int)(blockIdx.x * 256 + threadIdx.x), t = divide(at, Divisor{channel_mul, channel_shift});
    const int o = at - t * OP;
    if (t >= count || o >= O) return;
    {
#endif
    const Spot tile(first + t, th, tw, Divisor{image_mul, image_shift}, Divisor{row_mul, row_shift});
    float r[INNER][INNER];
    sums_of(m, part, pitch, at, t, o, cut, r);
    const float b = bias ? bias[o] : 0.0f;
#if POOL == 1
#pragma unroll
    for (int k = 0; k < 4; k++) {
        const int i = 2 * tile.i + k / 2, j = 2 * tile.j + k % 2, a = k / 2 * 2, c = k % 2 * 2;
        u32 winner;
        const float best = largest(r[a][c], r[a][c + 1], r[a + 1][c], r[a + 1][c + 1], winner);
        if (i >= Ho / 2 || j >= Wo / 2) continue;
        const size_t to = (size_t)((tile.n * (Ho / 2) + i) * (Wo / 2) + j) * O + o;
        put(out + to, act_apply(ACT, best + b, alpha));
        if (index) index[to] = (u8)winner;
    }
#else
#pragma unroll
    for (int k = 0; k < INNER * INNER; k++) {
        const int i = INNER * tile.i + k / INNER, j = INNER * tile.j + k % INNER;
        float &value = r[k / INNER][k % INNER];
        value = act_apply(ACT, value + b, alpha);
        if (i >= Ho || j >= Wo) continue;
        const size_t to = (size_t)((tile.n * Ho + i) * Wo + j) * O + o;
        put(out + to, add ? get(add + to) + value : value);
    }
#endif
#if MOMENTS
        const Spread here = moments_of<INNER * INNER>(
            [&](int i) { return INNER * tile.i + i / INNER < Ho && INNER * tile.j + i % INNER < Wo; },
            [&](int i) { return AS_READ(r[i / INNER][i % INNER]); });
        merge(all, here);
    }
    if (!moments) return;
    UNPACK_ROW_PLAN
    store_moments<W>(rows + warp * ROW, lane, all);
    finish_moments<256, W>(rows, 8, row_plan, (int)blockIdx.y, (int)blockIdx.x, O, box);
#else
    }
#endif
}
#endif
