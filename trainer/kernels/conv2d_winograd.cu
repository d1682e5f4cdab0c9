/* conv2d_winograd: 3 x 3 convolutions of stride and dilation 1 with 16 multiplications for 4 results instead of 36:
 * Winograd's F(2x2, 3x3), all in one kernel but the filters' transform.
 *   Y = A' [ sum_c (G w G')_c * (B' d B)_c ] A    d: 4 x 4 inputs, Y: 2 x 2 results, * element by element, ' transposed
 *   forward   out = act(b + conv(x, w))            dgrad   out = add + conv(dy * act'(y), w turned by 180 degrees)
 * in (N,H,W,C)   out, add (N,Ho,Wo,O)   w (O,3,3,C) or, turned, (C,3,3,O)   u (C4,16,OP) scratch   float32; in, out, add stored as REAL
 * C4, OP: C and O rounded up to multiples of 4 and of the pieces (here 32), zeros in the rest; for dgrad in is dy and C its channels.
 *
 * Macros    ACT    activation of the output        MASK   activation whose mask the input takes (y like in), or 0
 *           TURNED 0 or 1, for the filters         WINOGRAD_FILTER, WINOGRAD_CONV   which kernel to compile
 *           TAIL   1 unless C is a multiple of 4
 * Launch    winograd_filter_f32   grid ceil(C4 * OP / 128), block 128
 *           winograd_conv_f32     grid (ceil(N * th * tw / 32), ceil(O / 32)), block 256; th, tw: Ho/2, Wo/2, upwards;
 *                                 in_pitch W*C, u_pitch 16*OP
 * Work      a step takes 4 channels: warps 0-3 load and transform 32 tiles, warps 4-7 fetch filters, then warp w
 *           multiplies the elements 2w and 2w+1 of the 16: 32 channels x 32 tiles each, 8 x 4 a lane
 * Edges     any padding, O; in, u below 2^31 elements      Aliasing  out may be add        Order  fixed
 * Cost      2/2.25 N Ho Wo O 9 C operations; rounding errors about twice those of the plain sum
 */
#include "gemm.cuh"

enum { STEP = 4, TILES = 32, CHANNELS = 32, ELEMENTS = 16 };

#ifdef WINOGRAD_FILTER
extern "C" __global__ void __launch_bounds__(128) winograd_filter_f32(
    const float *__restrict__ w, float *__restrict__ u, int C, int O, int OP)
{
    const int C4 = (C + 3) / 4 * 4;
    const int e = (int)(blockIdx.x * 128 + threadIdx.x), c = e / OP, o = e % OP;
    if (c >= C4) return;
    float g[3][3], t[4][3];
#pragma unroll
    for (int a = 0; a < 3; a++)
#pragma unroll
        for (int b = 0; b < 3; b++) {
            const size_t turned = (((size_t)c * 3 + 2 - a) * 3 + 2 - b) * O + o;
            const size_t plain = (((size_t)o * 3 + a) * 3 + b) * C + c;
            g[a][b] = c < C && o < O ? w[TURNED ? turned : plain] : 0.0f;
        }
#pragma unroll
    for (int b = 0; b < 3; b++) {
        t[0][b] = g[0][b];
        t[1][b] = 0.5f * (g[0][b] + g[1][b] + g[2][b]);
        t[2][b] = 0.5f * (g[0][b] - g[1][b] + g[2][b]);
        t[3][b] = g[2][b];
    }
    float *out = u + (size_t)c * ELEMENTS * OP + o;
#pragma unroll
    for (int a = 0; a < 4; a++) {
        out[(size_t)(4 * a + 0) * OP] = t[a][0];
        out[(size_t)(4 * a + 1) * OP] = 0.5f * (t[a][0] + t[a][1] + t[a][2]);
        out[(size_t)(4 * a + 2) * OP] = 0.5f * (t[a][0] - t[a][1] + t[a][2]);
        out[(size_t)(4 * a + 3) * OP] = t[a][2];
    }
}
#endif

#ifdef WINOGRAD_CONV
enum {
    PITCH = TILES + 8,                          /* of a row of tiles: 4 channels x 8 tiles in 32 banks */
    VS = ELEMENTS * STEP * PITCH,               /* inputs [element][channel][tile] */
    US = STEP * ELEMENTS * CHANNELS,            /* filters [channel][element][output channel] */
    BACK = TILES + 4                            /* pitch of the results' way back: [element][8][tile] */
};

/* v = B' d B of a 4 x 4 patch, in place. */
__device__ __forceinline__ void transform_input(float (&d)[4][4])
{
#pragma unroll
    for (int b = 0; b < 4; b++) {
        const float d0 = d[0][b], d1 = d[1][b], d2 = d[2][b], d3 = d[3][b];
        d[0][b] = d0 - d2, d[1][b] = d1 + d2, d[2][b] = d2 - d1, d[3][b] = d1 - d3;
    }
#pragma unroll
    for (int a = 0; a < 4; a++) {
        const float d0 = d[a][0], d1 = d[a][1], d2 = d[a][2], d3 = d[a][3];
        d[a][0] = d0 - d2, d[a][1] = d1 + d2, d[a][2] = d2 - d1, d[a][3] = d1 - d3;
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) winograd_conv_f32(
    const real *__restrict__ in, const real *__restrict__ y, const float *__restrict__ u,
    const float *__restrict__ bias, const real *add, real *out, int N, int H, int W, int C, int O,
    int Ho, int Wo, int top, int left, int th, int tw, int in_pitch, int u_pitch, unsigned image_mul, int image_shift, unsigned row_mul, int row_shift, float alpha)
{
    __shared__ __align__(16) float shared[2 * (VS + US)];
    const Divisor by_image = {image_mul, image_shift}, by_row = {row_mul, row_shift};
    const int t0 = (int)blockIdx.x * TILES, o0 = (int)blockIdx.y * CHANNELS;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const bool loads_input = warp < 4;

    /* what this thread loads: one channel of one tile's patch, or 4 filter vectors */
    const int channel = lane % 4, tile = (warp & 3) * 8 + lane / 4;
    unsigned seen = 0; /* a bit for each of the 16 pixels */
    int away = 0;      /* of its first pixel from `in`, or of its first filter from u; within 31 bits */
    if (loads_input && t0 + tile < N * th * tw) {
        const int n = divide(t0 + tile, by_image), r = t0 + tile - n * (th * tw), ti = divide(r, by_row);
        const int i = 2 * ti - top, j = 2 * (r - ti * tw) - left;
#pragma unroll
        for (int e = 0; e < ELEMENTS; e++)
            seen |= (unsigned)((unsigned)(i + e / 4) < (unsigned)H && (unsigned)(j + e % 4) < (unsigned)W) << e;
        away = ((n * H + i) * W + j) * C + channel;
    }
    const int f = (int)threadIdx.x & 127; /* filter vector f + 128*q is row (channel, element) f/8 + 16*q, quad f%8 */
    if (!loads_input) away = f / 8 * (u_pitch / ELEMENTS) + o0 + f % 8 * 4;
    const int slot = loads_input ? channel * PITCH + tile : VS + f * 4; /* where its first value goes */

    float d[4][4]; /* under way to shared memory: 4 x 4 pixels, or 4 vectors of filters */
    auto load_row = [&](int c0, int a) { /* a quarter of a step's loads */
        if (loads_input) {
            const real *q = in + (ptrdiff_t)(away + c0 + a * in_pitch);
            const unsigned bits = (TAIL && c0 + channel >= C ? 0 : seen) >> 4 * a;
#pragma unroll
            for (int b = 0; b < 4; b++) d[a][b] = fetch<1, MASK>((bits >> b & 1) != 0, q + b * C, y - in, alpha).v[0];
        } else {
            const Pack<4> v = load<4>(u + (unsigned)((c0 + a) * u_pitch + away));
#pragma unroll
            for (int e = 0; e < 4; e++) d[a][e] = v.v[e];
        }
    };
    auto store_step = [&](float *buffer) {
        if (loads_input) {
            transform_input(d);
#pragma unroll
            for (int e = 0; e < ELEMENTS; e++) buffer[slot + e * STEP * PITCH] = d[e / 4][e % 4];
        } else {
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const Pack<4> v = {{d[q][0], d[q][1], d[q][2], d[q][3]}};
                store(buffer + slot + 128 * 4 * q, v);
            }
        }
    };

    const int lm = lane / 2 % 4, ln = lane % 2 + lane / 8 * 2; /* this lane's channels 16*g + 4*lm + i, tiles 4*ln + j */
    float acc[2][8][4];
#pragma unroll
    for (int x = 0; x < 2; x++)
#pragma unroll
        for (int m = 0; m < 8; m++)
#pragma unroll
            for (int n = 0; n < 4; n++) acc[x][m][n] = 0.0f;

#pragma unroll
    for (int a = 0; a < 4; a++) load_row(0, a);
    store_step(shared);
    __syncthreads();
    int now = 0; /* which half of shared memory */
    for (int c0 = 0; c0 < C; c0 += STEP) {
        const bool more = c0 + STEP < C;
        const float *v = shared + now + 2 * warp * STEP * PITCH + 4 * ln;
        const float *w = shared + now + VS + 2 * warp * CHANNELS + 4 * lm;
#pragma unroll
        for (int c = 0; c < STEP; c++) {
            if (more) load_row(c0 + STEP, c);
#pragma unroll
            for (int x = 0; x < 2; x++) {
                const Pack<4> b = load<4>(v + (x * STEP + c) * PITCH);
                const float *row = w + (c * ELEMENTS + x) * CHANNELS;
                const Pack<4> a[2] = {load<4>(row), load<4>(row + 16)};
#pragma unroll
                for (int m = 0; m < 8; m++)
#pragma unroll
                    for (int n = 0; n < 4; n++) acc[x][m][n] = fmaf(a[m / 4].v[m % 4], b.v[n], acc[x][m][n]);
            }
        }
        now = VS + US - now;
        if (more) store_step(shared + now);
        __syncthreads();
    }

    /* Back through shared memory, in 4 turns: turn i brings channels 4*q + i; then thread (q, tile) holds all 16
     * elements of that channel and tile, and after the turns 2 x 2 pixels of 4 neighbouring channels. */
    const int q = (int)threadIdx.x % 8, my_tile = (int)threadIdx.x / 8;
    float r[4][4]; /* pixel, channel */
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int x = 0; x < 2; x++)
#pragma unroll
            for (int g = 0; g < 2; g++) {
                Pack<4> b;
#pragma unroll
                for (int n = 0; n < 4; n++) b.v[n] = acc[x][4 * g + i][n];
                store(shared + ((2 * warp + x) * 8 + 4 * g + lm) * BACK + 4 * ln, b);
            }
        __syncthreads();
        float t[2][4];
#pragma unroll
        for (int b = 0; b < 4; b++) {
            float m[4];
#pragma unroll
            for (int a = 0; a < 4; a++) m[a] = shared[((4 * a + b) * 8 + q) * BACK + my_tile];
            t[0][b] = m[0] + m[1] + m[2];
            t[1][b] = m[1] - m[2] - m[3];
        }
#pragma unroll
        for (int a = 0; a < 2; a++) {
            r[2 * a][i] = t[a][0] + t[a][1] + t[a][2];
            r[2 * a + 1][i] = t[a][1] - t[a][2] - t[a][3];
        }
        __syncthreads();
    }

    const int o = o0 + 4 * q;
    if (t0 + my_tile >= N * th * tw || o >= O) return;
    const int n = divide(t0 + my_tile, by_image), rest = t0 + my_tile - n * (th * tw), ti = divide(rest, by_row);
    const int i0 = 2 * ti, j0 = 2 * (rest - ti * tw);
    Pack<4> b = fill<4>(0.0f);
#pragma unroll
    for (int c = 0; c < 4; c++)
        if (bias && o + c < O) b.v[c] = bias[o + c];
#pragma unroll
    for (int pixel = 0; pixel < 4; pixel++) {
        const int i = i0 + pixel / 2, j = j0 + pixel % 2;
        if (i >= Ho || j >= Wo) continue;
        const size_t at = (((size_t)n * Ho + i) * Wo + j) * O + o;
        Pack<4> v;
#pragma unroll
        for (int c = 0; c < 4; c++) v.v[c] = act_apply(ACT, r[pixel][c] + b.v[c], alpha);
        if (O % 4 == 0) {
            if (add) {
                const Pack<4> older = load<4>(add + at);
#pragma unroll
                for (int c = 0; c < 4; c++) v.v[c] += older.v[c];
            }
            store(out + at, v);
        } else {
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (o + c < O) put(out + at + c, add ? get(add + at + c) + v.v[c] : v.v[c]);
        }
    }
}
#endif
