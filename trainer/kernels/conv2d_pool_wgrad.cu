/* conv2d_pool_wgrad: the weight gradient of a convolution (stride and dilation 1) whose sums go through a 2 x 2 max
 * pool. Only the winner of each window has a gradient, so this multiplies a quarter of what conv2d.cu's wgrad does.
 *   dw[o,u,v,c] = sum_nij g[n,i,j,o] x[n, 2i+a+u-top, 2j+b+v-left, c]   (a, b) = the winner, index[n,i,j,o] = 2a+b
 *   db[o] = sum_nij g[n,i,j,o]     g = dy * act'(y)
 * x (N,H,W,C)  dy, y, index (N,Hp,Wp,O)   stored as REAL, index one byte   dw (O,KH,KW,C)  db (O)   float32
 *
 * A lane owns an input channel; a warp owns 8 output channels and all taps, its sums in registers. For a window each
 * lane holds the (KH+1) x (KW+1) values that the four places see. The winner of (window, o) is the same for all lanes,
 * so a branch that the warp takes together picks the KH x KW values to multiply; behind a relu a gradient of 0 is
 * skipped.
 *
 * Macros    FKH, FKW  KH, KW     OW  warps along O (4 or 8): a block takes 8*OW output and 32 input channels
 *           TW, TH  windows of a step, across and down, 16 in all     VC  4 where C is a multiple of 4, else 1
 *           ACT  number of the activation
 * Launch    grid (ceil(O / (8*OW)) * ceil(C / 32), splits), block 512; block z of a tile takes every splits-th step and
 *           writes part[z][O*K + O] (without bias O*K), conv2d_sum_f32 adds the parts
 *           *_mul, *_shift: what divides by the steps of an image and of its rows
 * Edges     any N, H, W, C, O
 * Aliasing  none overlap        Order  fixed for given macros and splits: equal inputs give equal bits
 * Cost      2 N Hp Wp O KH KW C operations and about as many issue slots again to find the winners
 */
#include "image.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
#define SKIPS 0 /* one register is missing for it */
#else
#define SKIPS (ACT == ACT_RELU || ACT == ACT_RELU6) /* many gradients are 0: their place is 4 */
#endif

enum {
    THREADS = 512, OUT = 8, OB = OUT * OW, GROUPS = 16 / OW, TAPS = FKH * FKW,
    WINDOWS = TW * TH, MINE = WINDOWS / GROUPS,             /* of a step; of a warp */
    ROWS = 2 * TH + FKH - 1, COLS = 2 * TW + FKW - 1,       /* of the image that they see */
    QUADS = 32 / VC, LOADS = (ROWS * COLS * QUADS + THREADS - 1) / THREADS,
    BRINGS = WINDOWS * OB / THREADS,                        /* gradients of a thread */
    IMAGE = ROWS * COLS * 32, SUMS = (GROUPS - 1) * OW * TAPS * 32
};
static_assert(WINDOWS * OB % THREADS == 0 && THREADS % OB == 0, "a thread stays at its output channel");
static_assert(WINDOWS % GROUPS == 0, "warps take equal shares");

/* sums += g * what place (A, B) of the window sees */
template <int A, int B>
__device__ __forceinline__ void take(float (&sums)[TAPS], const float (&seen)[FKH + 1][FKW + 1], float g)
{
#pragma unroll
    for (int t = 0; t < TAPS; t++) sums[t] = fmaf(g, seen[A + t / FKW][B + t % FKW], sums[t]);
}

/* What a thread brings from memory for the next step, while the present one is worked on: as it lies there. */
struct Next {
    Pack<VC> x[LOADS];
    float dy[BRINGS], y[BRINGS];
    u8 winner[BRINGS];
};

extern "C" __global__ void __launch_bounds__(512, 1) conv2d_pool_wgrad_f32(
    const real *__restrict__ dy, const real *__restrict__ y, const u8 *__restrict__ index, const real *__restrict__ x,
    float *__restrict__ part, int N, int H, int W, int C, int O, int Hp, int Wp, int top, int left, unsigned image_mul,
    int image_shift, unsigned row_mul, int row_shift, int with_bias, float alpha)
{
    wait_for_last_launch();
    __shared__ __align__(16) float image[IMAGE > SUMS ? IMAGE : SUMS];
    __shared__ __align__(16) float gradient[WINDOWS * OB];
    __shared__ __align__(16) u8 winner[WINDOWS * OB];
    const u32 t = threadIdx.x, lane = t % 32, warp = t / 32, group = warp / OW;
    const int tiles_o = (O + OB - 1) / OB, o0 = (int)blockIdx.x % tiles_o * OB, c0 = (int)blockIdx.x / tiles_o * 32;
    const int across = (Wp + TW - 1) / TW, down = (Hp + TH - 1) / TH, steps = N * down * across;
    const bool biased = with_bias && c0 == 0;

    float acc[OUT][TAPS], bias = 0.0f;
#pragma unroll
    for (int e = 0; e < OUT * TAPS; e++) acc[e / TAPS][e % TAPS] = 0.0f;

    Next next;
    const auto bring = [&](int step) {
        const Spot at(step, down, across, Divisor{image_mul, image_shift}, Divisor{row_mul, row_shift});
        const int n = at.n, i0 = at.i * TH, j0 = at.j * TW;
        const real *from = x + (size_t)n * H * W * C + c0;
#pragma unroll
        for (int e = 0; e < LOADS; e++) {
            const u32 at = t + e * THREADS, pixel = at / QUADS, c = at % QUADS * VC, r = pixel / COLS;
            const int i = 2 * i0 - top + (int)r, j = 2 * j0 - left + (int)(pixel - r * COLS);
            const bool inside = r < ROWS && (u32)i < (u32)H && (u32)j < (u32)W && c0 + c < C;
            next.x[e] = inside ? load<VC>(from + (i * W + j) * C + c) : fill<VC>(0.0f);
        }
#pragma unroll
        for (int e = 0; e < BRINGS; e++) {
            const u32 window = t / OB + e * (THREADS / OB);
            const int i = i0 + (int)(window / TW), j = j0 + (int)(window % TW);
            const bool exists = i < Hp && j < Wp && o0 + t % OB < O;
            const size_t at = exists ? ((size_t)(n * Hp + i) * Wp + j) * O + o0 + t % OB : 0;
            next.dy[e] = exists ? get(dy + at) : 0.0f;
            next.y[e] = ACT && exists ? get(y + at) : 0.0f;
            next.winner[e] = index[at];
        }
    };

    if ((int)blockIdx.y < steps) bring((int)blockIdx.y);
    for (int step = (int)blockIdx.y; step < steps; step += (int)gridDim.y) {
        __syncthreads(); /* the step before is worked off */
#pragma unroll
        for (int e = 0; e < LOADS; e++) {
            const u32 at = (t + e * THREADS) * VC;
            if (at < IMAGE) store(image + at, next.x[e]);
        }
#pragma unroll
        for (int e = 0; e < BRINGS; e++) {
            const float g = act_mask(ACT, next.dy[e], next.y[e], alpha);
            gradient[t + e * THREADS] = g;
            winner[t + e * THREADS] = SKIPS && g == 0.0f ? 4 : next.winner[e];
            bias += g;
        }
        __syncthreads();
        if (step + (int)gridDim.y < steps) bring(step + (int)gridDim.y);
#pragma unroll 1
        for (int k = 0; k < MINE; k++) {
            const u32 window = group * MINE + k, at = window * OB + warp % OW * OUT;
            const float *from = image + (window / TW * 2 * COLS + window % TW * 2) * 32 + lane;
            float seen[FKH + 1][FKW + 1];
#pragma unroll
            for (int e = 0; e < (FKH + 1) * (FKW + 1); e++)
                seen[e / (FKW + 1)][e % (FKW + 1)] = from[(e / (FKW + 1) * COLS + e % (FKW + 1)) * 32];
#pragma unroll
            for (int q = 0; q < OUT / 4; q++) {
                const u32 codes = *reinterpret_cast<const u32 *>(winner + at + 4 * q);
                const Pack<4> g = load<4>(gradient + at + 4 * q);
#pragma unroll
                for (int o = 0; o < 4; o++) {
                    if (SKIPS && codes >> 8 * o & 4) {
                    } else if (codes >> 8 * o & 2) {
                        if (codes >> 8 * o & 1) take<1, 1>(acc[4 * q + o], seen, g.v[o]);
                        else take<1, 0>(acc[4 * q + o], seen, g.v[o]);
                    } else {
                        if (codes >> 8 * o & 1) take<0, 1>(acc[4 * q + o], seen, g.v[o]);
                        else take<0, 0>(acc[4 * q + o], seen, g.v[o]);
                    }
                }
            }
        }
    }

    /* over the groups of warps, output channel by output channel, then to memory */
    part += (size_t)blockIdx.y * ((size_t)O * TAPS * C + (with_bias ? O : 0));
    float *mine = image + (warp % OW * TAPS) * 32 + lane;
#pragma unroll
    for (int e = 0; e < OUT; e++) {
        __syncthreads();
        if (group > 0) {
#pragma unroll
            for (int k = 0; k < TAPS; k++) mine[((group - 1) * OW * TAPS + k) * 32] = acc[e][k];
        }
        __syncthreads();
        const int o = o0 + warp % OW * OUT + e;
        if (group > 0 || o >= O || c0 + lane >= C) continue;
        float *out = part + (size_t)o * TAPS * C + c0 + lane;
#pragma unroll
        for (int k = 0; k < TAPS; k++) {
            float s = acc[e][k];
#pragma unroll
            for (int g = 0; g < GROUPS - 1; g++) s += mine[(g * OW * TAPS + k) * 32];
            out[(size_t)k * C] = s;
        }
    }
    __syncthreads();
    gradient[t] = bias; /* WINDOWS * OB is a multiple of the threads */
    __syncthreads();
    if (biased && t < OB && o0 + t < O) {
        float s = 0.0f;
#pragma unroll
        for (int k = 0; k < THREADS / OB; k++) s += gradient[k * OB + t];
        part[(size_t)O * TAPS * C + o0 + t] = s;
    }
}
