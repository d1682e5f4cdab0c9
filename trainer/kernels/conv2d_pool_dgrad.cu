/* conv2d_pool_dgrad: the data gradient of a 3 x 3 convolution (stride and dilation 1) whose sums go through a 2 x 2 max
 * pool. Only the winner of each window has a gradient, so this multiplies a quarter of what conv2d.cu's dgrad does.
 *   dx[n,p,q,c] = add + sum over windows (i,j), channels o and taps (u,v) of g[n,i,j,o] w[o,u,v,c]
 *                 with p = 2i+a+u-top, q = 2j+b+v-left for the winner (a, b), index[n,i,j,o] = 2a+b; g = dy * act'(y)
 * dx, add (N,H,W,C)  dy, y, index (N,Hp,Wp,O)   stored as REAL, index one byte   w (O,3,3,C)   float32
 *
 * A lane owns an input channel; a warp owns 2 x 4 windows and the 6 x 10 pixels they reach, its sums in registers, and
 * goes through the output channels: 9 weights for 8 windows. The winner of (window, o) is the same for all lanes, so a
 * branch that the warp takes together picks the 9 pixels; behind a relu a gradient of 0 is skipped. At the end the
 * warps add their pixels up in shared memory, those that share none at the same time.
 * A block's windows are some rows of an image, over its whole width. The last two pixel rows that they reach belong to
 * the block below: they go to `edges`, which conv2d_pool_edges_f32 adds.
 *
 * Macros    WR, WC  warps down and across (WR*WC = 2, 4, 8 or 16); the 16 / (WR*WC) groups of warps share the channels
 *           PASS    channels whose pixels pass through shared memory together (8 or 16)
 *           ACT     number of the activation       CONV_DGRAD, CONV_EDGES  which kernel to compile
 * Launch    conv2d_pool_dgrad_f32   grid N * bands * ceil(C / 32), block 512; bands = ceil(Hp / (2*WR)), Wp <= 4*WC;
 *                                   edges (N, bands-1, 2, W, C), unused if bands is 1
 *           conv2d_pool_edges_f32   grid ceil(N * (bands-1) * 2*W*C / 256), block 256
 * Edges     any N, C, O; H <= 4*WR*bands + 2 - top, W <= 8*WC + 2 - left: no pixel lies beyond what the windows reach
 * Aliasing  dx may be add; nothing else overlaps
 * Order     fixed for given macros: equal inputs give equal bits. REAL Half: the first two rows of a band but the first
 *           are rounded twice
 * Cost      2 N Hp Wp O 9 C operations and about as many issue slots again to find the winners
 */
#include "image.cuh"

enum { RH = 2 * WR, RW = 4 * WC }; /* a block's windows */

#ifdef CONV_DGRAD
enum {
    THREADS = 512, GROUPS = 16 / (WR * WC), STEP = 8, TURN = STEP / GROUPS, /* channels o of a step; of a group */
    SKIPS = ACT == ACT_RELU || ACT == ACT_RELU6, /* many gradients are 0: their place is 4 */
    WINDOWS = RH * RW, PITCH = WINDOWS + 4,
    WEIGHTS = STEP * 9 * 32, LOADS = (WEIGHTS + THREADS - 1) / THREADS,
    BRINGS = (STEP * WINDOWS + THREADS - 1) / THREADS,
    HIGH = 2 * RH + 2, WIDE = 2 * RW + 2, /* pixels that the windows reach */
    FLOATS = WEIGHTS + STEP * PITCH + STEP * PITCH / 4, IMAGE = HIGH * WIDE * PASS,
    ROW_TURNS = WR > 1 ? 2 : 1, TURNS = WC > 1 ? 2 * ROW_TURNS : ROW_TURNS /* in which neighbours add */
};
static_assert(GROUPS * WR * WC == 16 && GROUPS <= STEP, "16 warps");

/* The pixels that place (A, B) of a window at (R, Q) reaches += g * w */
template <int R, int Q> __device__ __forceinline__ void give(float (&sums)[6][10], const float (&w)[9], float g)
{
#pragma unroll
    for (int t = 0; t < 9; t++) sums[R + t / 3][Q + t % 3] = fmaf(g, w[t], sums[R + t / 3][Q + t % 3]);
}

/* Windows K..3 of row R of a warp's windows. */
template <int R, int K> struct Windows {
    static __device__ __forceinline__ void all(float (&sums)[6][10], const float (&w)[9], const Pack<4> &g, u32 places)
    {
        if (SKIPS && places >> 8 * K & 4) { /* equal for all lanes */
        } else if (places >> 8 * K & 2) {
            if (places >> 8 * K & 1) give<2 * R + 1, 2 * K + 1>(sums, w, g.v[K]);
            else give<2 * R + 1, 2 * K>(sums, w, g.v[K]);
        } else {
            if (places >> 8 * K & 1) give<2 * R, 2 * K + 1>(sums, w, g.v[K]);
            else give<2 * R, 2 * K>(sums, w, g.v[K]);
        }
        Windows<R, K + 1>::all(sums, w, g, places);
    }
};
template <int R> struct Windows<R, 4> {
    static __device__ __forceinline__ void all(float (&)[6][10], const float (&)[9], const Pack<4> &, u32) {}
};

extern "C" __global__ void __launch_bounds__(512, 1) conv2d_pool_dgrad_f32(
    const real *__restrict__ dy, const real *__restrict__ y, const u8 *__restrict__ index, const float *__restrict__ w,
    const real *add, real *dx, float *__restrict__ edges, int H, int W, int C, int O, int Hp, int Wp, int top, int left,
    int bands, float alpha)
{
    wait_for_last_launch();
    __shared__ __align__(16) float shared[FLOATS > IMAGE * GROUPS ? FLOATS : IMAGE * GROUPS];
    float *const weights = shared, *const gradient = weights + WEIGHTS; /* [o][tap][c], [o][window] */
    u8 *const winner = (u8 *)(gradient + STEP * PITCH);
    const u32 t = threadIdx.x, lane = t % 32, cell = t / 32 % (WR * WC), group = t / 32 / (WR * WC);
    const int chunks = (C + 31) / 32, c0 = (int)blockIdx.x % chunks * 32, unit = (int)blockIdx.x / chunks;
    const int n = unit / bands, band = unit - n * bands;
    const bool busy = band * RH + (int)(cell / WC) * 2 < Hp && (int)(cell % WC) * 4 < Wp;

    float acc[6][10];
#pragma unroll
    for (int e = 0; e < 60; e++) acc[e / 10][e % 10] = 0.0f;

    float next_w[LOADS], next_dy[BRINGS], next_y[BRINGS];
    u8 next_winner[BRINGS];
    const auto bring = [&](int o0) {
#pragma unroll
        for (int e = 0; e < LOADS; e++) {
            const u32 at = t + e * THREADS, o = o0 + at / (9 * 32), tap = at / 32 % 9, c = c0 + lane;
            next_w[e] = at < WEIGHTS && o < O && c < C ? w[((size_t)o * 9 + tap) * C + c] : 0.0f;
        }
#pragma unroll
        for (int e = 0; e < BRINGS; e++) {
            const u32 at = t + e * THREADS, o = o0 + at % STEP, window = at / STEP, in = window % 8, of = window / 8;
            const int i = band * RH + (int)(of / WC * 2 + in / 4), j = (int)(of % WC * 4 + in % 4);
            const bool exists = window < WINDOWS && i < Hp && j < Wp && o < O;
            const size_t from = exists ? ((size_t)(n * Hp + i) * Wp + j) * O + o : 0;
            next_dy[e] = exists ? get(dy + from) : 0.0f;
            next_y[e] = ACT && exists ? get(y + from) : 0.0f;
            next_winner[e] = index[from];
        }
    };

    bring(0);
    for (int o0 = 0; o0 < O; o0 += STEP) {
        __syncthreads(); /* the step before is worked off */
#pragma unroll
        for (int e = 0; e < LOADS; e++)
            if (t + e * THREADS < WEIGHTS) weights[t + e * THREADS] = next_w[e];
#pragma unroll
        for (int e = 0; e < BRINGS; e++) {
            const u32 at = t + e * THREADS, to = at % STEP * PITCH + at / STEP;
            if (at / STEP >= WINDOWS) continue;
            const float g = act_mask(ACT, next_dy[e], next_y[e], alpha);
            gradient[to] = g;
            winner[to] = SKIPS && g == 0.0f ? 4 : next_winner[e];
        }
        __syncthreads();
        if (o0 + STEP < O) bring(o0 + STEP);
        if (!busy) continue;
#pragma unroll 1
        for (int k = 0; k < TURN; k++) {
            const u32 o = group * TURN + k, at = o * PITCH + cell * 8;
            const float *from = weights + o * (9 * 32) + lane;
            float wk[9];
#pragma unroll
            for (int tap = 0; tap < 9; tap++) wk[tap] = from[tap * 32];
            Windows<0, 0>::all(acc, wk, load<4>(gradient + at), *reinterpret_cast<const u32 *>(winner + at));
            Windows<1, 0>::all(acc, wk, load<4>(gradient + at + 4), *reinterpret_cast<const u32 *>(winner + at + 4));
        }
    }

    /* each group into an image of its own; of its warps, neighbours one after another */
    float *const mine = shared + group * IMAGE + (cell / WC * 4 * WIDE + cell % WC * 8) * PASS + lane % PASS;
    const u32 my_turn = cell / WC % 2 + cell % WC % 2 * ROW_TURNS;
#pragma unroll 1
    for (int pass = 0; pass < 32 / PASS; pass++) {
        __syncthreads();
        for (u32 e = t; e < IMAGE * GROUPS; e += THREADS) shared[e] = 0.0f;
        __syncthreads();
#pragma unroll 1
        for (u32 turn = 0; turn < TURNS; turn++) {
            if (turn == my_turn && lane / PASS == pass) {
#pragma unroll
                for (int e = 0; e < 60; e++) mine[(e / 10 * WIDE + e % 10) * PASS] += acc[e / 10][e % 10];
            }
            __syncthreads();
        }
        for (u32 e = t; e < IMAGE; e += THREADS) {
            const int c = c0 + pass * PASS + (int)(e % PASS), row = (int)(e / PASS / WIDE);
            const int p = 2 * RH * band - top + row, q = (int)(e / PASS % WIDE) - left;
            if (c >= C || (u32)p >= (u32)H || (u32)q >= (u32)W) continue;
            float sum = shared[e];
#pragma unroll
            for (int g = 1; g < GROUPS; g++) sum += shared[g * IMAGE + e];
            if (row >= 2 * RH && band + 1 < bands) {
                const size_t edge = (size_t)(n * (bands - 1) + band) * 2 + row - 2 * RH;
                edges[(edge * W + q) * C + c] = sum;
            } else {
                const size_t to = (((size_t)n * H + p) * W + q) * C + c;
                put(dx + to, add ? get(add + to) + sum : sum);
            }
        }
    }
}
#endif

#ifdef CONV_EDGES
extern "C" __global__ void __launch_bounds__(256) conv2d_pool_edges_f32(
    const float *__restrict__ edges, real *dx, int N, int H, int W, int C, int top, int bands)
{
    wait_for_last_launch();
    const int row_length = W * C, e = (int)(blockIdx.x * 256 + threadIdx.x);
    if (e >= N * (bands - 1) * 2 * row_length) return;
    const int row = e / row_length, edge = row / 2, n = edge / (bands - 1), band = edge - n * (bands - 1) + 1;
    const int p = 2 * RH * band - top + row % 2;
    if ((u32)p >= (u32)H) return; /* nothing was stored here */
    real *to = dx + ((size_t)n * H + p) * row_length + e - row * row_length;
    put(to, get(to) + edges[e]);
}
#endif
