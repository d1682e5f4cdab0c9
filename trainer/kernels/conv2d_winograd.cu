/* conv2d_winograd: 3 x 3 convolutions of stride and dilation 1 with 16 multiplications for 4 results instead of 36:
 * Winograd's F(2x2, 3x3), all in one kernel but the filters' transform. A lane makes 8 x 8 results of one element.
 *   Y = A' [ sum_c (G w G')_c * (B' d B)_c ] A    d: 4 x 4 inputs, Y: 2 x 2 results, * element by element, ' transposed
 *   forward   out = act(b + conv(x, w))            dgrad   out = add + conv(dy * act'(y), w turned by 180 degrees)
 * in, y (N,H,W,C)   out, add (N,Ho,Wo,O), stored as REAL   u (C4,16,OP), of winograd_filter_f32   b (O)   float32
 * C4, OP: C and O rounded up to multiples of 4 and OUTS, zeros in the rest; for dgrad in is dy and C its channels.
 * With POOL a max pool of 2 x 2 stands between the sum and act, one tile is one window. Forward: out and index (u8) are
 * (N,Ho/2,Wo/2,O), index the first of the largest, row*2 + column. dgrad: in (dy), y and index are (N,H/2,W/2,C).
 *
 * Macros    OUTS, TILES  32 or 64: a block makes OUTS channels of TILES tiles
 *           ACT    activation of the output        MASK   activation whose mask the input takes (y like in), or 0
 *           POOL   0, 1 forward, 2 dgrad           TAIL   1 unless C is a multiple of 8
 *           MOMENTS  1: the moments of out are left as well (moments.cuh), OUTS channels are a column group; no SPLIT
 *           SPLIT  1: out is scratch, float32, part[split][N,Ho,Wo,O] of the plain sums; ACT 0, no b and add
 * Launch    grid (ceil(N*th*tw / TILES), ceil(O / OUTS), splits), block OUTS*TILES/4; th, tw: Ho/2, Wo/2, upwards;
 *           a split takes per_split channels, a multiple of 8; in_pitch W*C (POOL 2: W/2*C), u_pitch 16*OP
 * Work      a thread loads one channel of a tile's patch, 8 channels side by side in a warp; they are transformed and
 *           stored for two steps of 4 channels each. Meanwhile the other half of shared memory is multiplied.
 * Edges     any padding, H, W, C, O (POOL 2: padding 1); in, u below 2^31 elements
 * Aliasing  out may be add        Order  fixed for given splits
 * Cost      2/2.25 N Ho Wo O 9 C operations; rounding errors about twice those of the plain sum
 */
#include "gemm.cuh"
#include "moments.cuh"

#ifndef MOMENTS
#define MOMENTS 0
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
enum { OLDER = 1 };
#else
enum { OLDER = 0 };
#endif

enum {
    STEP = 4, ELEMENTS = 16,
    LO = OUTS / 8, LT = TILES / 8, LANES = LO * LT, /* LO x LT lanes to an element */
    THREADS = ELEMENTS * LANES,
    X_THREADS = 8 * TILES,                          /* that load inputs */
    BOTH = X_THREADS == THREADS,                    /* they load filters as well */
    U_THREADS = BOTH ? THREADS : THREADS - X_THREADS,
    VECTORS = STEP * ELEMENTS * OUTS / 4 / U_THREADS, /* of filters, in a step of a thread */
    XS = ELEMENTS * STEP * TILES,                   /* inputs [element][channel][tile], see `slot` */
    US = STEP * ELEMENTS * OUTS,                    /* filters [channel][element][output channel] */
    BUFFER = XS + US,
    QUADS = OUTS / 4,
    TWICE = MASK != 0 || POOL == 2,                 /* inputs are loaded in two goes */
    /* How many channels of a step stand unrolled: more are faster until registers spill. */
    UNROLL = POOL == 2 ? (OUTS == 32 || OLDER ? 1 : 2) : OUTS == 32 || (OLDER && (TAIL || SPLIT)) ? 2 : 4
};
static_assert(ELEMENTS * QUADS * TILES <= 2 * BUFFER, "the results' way back fits into the buffers");

#if SPLIT
typedef float result;
#else
typedef real result;
#endif

struct Lane {
    int element, lo, lt;
    __device__ __forceinline__ explicit Lane(int thread)
    {
        const int sub = thread % LANES;
        element = thread / LANES, lo = sub / 2 % LO, lt = sub % 2 + sub / (2 * LO) * 2;
    }
};

/* v = B' d B of a 4 x 4 patch, in place. */
__device__ __forceinline__ void transform_input(float (&d)[16])
{
#pragma unroll
    for (int b = 0; b < 4; b++) {
        const float d0 = d[b], d1 = d[4 + b], d2 = d[8 + b], d3 = d[12 + b];
        d[b] = d0 - d2, d[4 + b] = d1 + d2, d[8 + b] = d2 - d1, d[12 + b] = d1 - d3;
    }
#pragma unroll
    for (int a = 0; a < 16; a += 4) {
        const float d0 = d[a], d1 = d[a + 1], d2 = d[a + 2], d3 = d[a + 3];
        d[a] = d0 - d2, d[a + 1] = d1 + d2, d[a + 2] = d2 - d1, d[a + 3] = d1 - d3;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS) winograd_conv_f32(
    const real *__restrict__ in, const real *__restrict__ y, u8 *index, const float *__restrict__ u,
    const float *__restrict__ bias, const result *add, result *out, int N, int H, int W, int C, int O, int Ho, int Wo,
    int top, int left, int th, int tw, int tiles, int in_pitch, int u_pitch, unsigned image_mul, int image_shift,
    unsigned row_mul, int row_shift, int per_split, float alpha, ROW_PLAN)
{
    wait_for_last_launch();
    __shared__ __align__(16) float shared[2 * BUFFER];
    const Divisor by_image = {image_mul, image_shift}, by_row = {row_mul, row_shift};
    const int first = SPLIT ? (int)blockIdx.z * per_split : 0, end = SPLIT ? min(C, first + per_split) : C;
    const bool loads_x = BOTH || (int)threadIdx.x < X_THREADS, loads_u = BOTH || !loads_x;

    /* Inputs: thread%8 is the channel of 8, thread/8 the tile. Within a row of tiles in shared memory the
     * groups of 4 change places with the channel, so that 4 channels x 4 tiles fall into different banks. */
    const int channel = (int)threadIdx.x % 8, tile = (int)blockIdx.x * TILES + (int)threadIdx.x / 8;
    unsigned seen = 0; /* a bit for each of the 16 pixels (POOL 2: 9 windows) */
    int x_at = 0;      /* of the first from `in`, or of a filter from u; within 31 bits */
    if (loads_x && tile < tiles) {
        const int n = divide(tile, by_image), r = tile - n * (th * tw), ti = divide(r, by_row);
        const int tj = r - ti * tw;
#if POOL == 2
        const int i = ti - 1, j = tj - 1;
#pragma unroll
        for (int e = 0; e < 9; e++)
            seen |= (unsigned)((unsigned)(i + e / 3) < (unsigned)H / 2 && (unsigned)(j + e % 3) < (unsigned)W / 2) << e;
        x_at = ((n * (H / 2) + i) * (W / 2) + j) * C + channel;
#else
        const int i = 2 * ti - top, j = 2 * tj - left;
#pragma unroll
        for (int e = 0; e < ELEMENTS; e++)
            seen |= (unsigned)((unsigned)(i + e / 4) < (unsigned)H && (unsigned)(j + e % 4) < (unsigned)W) << e;
        x_at = ((n * H + i) * W + j) * C + channel;
#endif
    }
    /* Filters: vector f + U_THREADS*q of a step is row (channel, element) f/QUADS, quad f%QUADS. */
    const int f = (int)threadIdx.x - (BOTH ? 0 : X_THREADS);
    const int f_at = f / QUADS * (u_pitch / ELEMENTS) + (int)blockIdx.y * OUTS + f % QUADS * 4;
    if (!BOTH && loads_u) x_at = f_at;
    const int u_at = BOTH ? f_at : x_at;

    float d[16];                       /* under way to shared memory: a patch, or 4 vectors of filters */
    float own[BOTH ? 4 * VECTORS : 1]; /* the filters, if it is both */
    float *const w = BOTH ? own : d;
    auto placed = [](int at) { return UNROLL < 4 ? anew(at) : at; };
    /* A patch. With a mask that takes two calls, and the loads of the first, of y, are under way between them: the
     * second loads dy where relu let it through, or for other activations all of dy. */
#if POOL != 2
    auto load_patch = [&](int c0, bool again) {
        const unsigned bits = (unsigned)anew(TAIL && c0 + channel >= end ? 0 : (int)seen);
#pragma unroll
        for (int a = 0; a < 4; a++) {
            const int row = placed(x_at + c0 + a * in_pitch);
#pragma unroll
            for (int b = 0; b < 4; b++) {
                const bool exists = (bits >> (4 * a + b) & 1) != 0;
                const ptrdiff_t at = row + b * C;
                float &v = d[4 * a + b];
                if (!MASK)
                    v = exists ? get(in + at) : 0.0f;
                else if (!again)
                    v = exists ? get(y + at) : 0.0f;
                else if (MASK == ACT_RELU)
                    v = v > 0.0f ? get(in + at) : 0.0f;
                else
                    v = exists ? act_mask(MASK, get(in + at), v, alpha) : 0.0f;
            }
        }
    };
    auto complete_patch = [&]() {};
#else
    /* 3 x 3 windows, whose first has its last pixel in the patch: the first call loads y and index, the second dy. */
    unsigned winners[9], taps = 0; /* taps: 3 bits for each window, 4 where nothing comes through */
    auto load_patch = [&](int c0, bool again) {
        const unsigned bits = (unsigned)anew(TAIL && c0 + channel >= end ? 0 : (int)seen);
        if (again) {
            taps = 0;
#pragma unroll
            for (int e = 0; e < 9; e++)
                taps |= (!(bits >> e & 1) || (MASK == ACT_RELU && !(d[e] > 0.0f)) ? 4u : winners[e]) << 3 * e;
        }
#pragma unroll
        for (int e = 0; e < 9; e++) {
            const ptrdiff_t at = placed(x_at + c0 + e / 3 * in_pitch) + e % 3 * C;
            if (!again) {
                const bool exists = (bits >> e & 1) != 0;
                winners[e] = exists ? index[at] : 4u;
                if (MASK) d[e] = exists ? get(y + at) : 0.0f;
            } else if ((taps >> 3 * e & 4) == 0) {
                const float v = get(in + at);
                d[e] = MASK == 0 || MASK == ACT_RELU ? v : act_mask(MASK, v, d[e], alpha);
            }
        }
    };
    auto complete_patch = [&]() { /* its pixels from the windows */
        float window[9];
#pragma unroll
        for (int e = 0; e < 9; e++) window[e] = d[e];
#pragma unroll
        for (int e = 0; e < ELEMENTS; e++) {
            const int a = e / 4, b = e % 4, from = (a + 1) / 2 * 3 + (b + 1) / 2, tap = (a + 1) % 2 * 2 + (b + 1) % 2;
            d[e] = (taps >> 3 * from & 7) == (unsigned)tap ? window[from] : 0.0f;
        }
    };
#endif
    auto load_filters = [&](int c0) {
#pragma unroll
        for (int q = 0; q < VECTORS; q++) {
            const int rows = U_THREADS / QUADS * q;
            const Pack<4> v = load<4>(u + (ptrdiff_t)placed(c0 * u_pitch + u_at + rows * (u_pitch / ELEMENTS)));
#pragma unroll
            for (int e = 0; e < 4; e++) w[4 * q + e] = v.v[e];
        }
    };
    auto store_patch = [&](float *buffer, int step) { /* the channels of the first (0) or the second step */
        const int thread = anew((int)threadIdx.x), c = thread % STEP;
        float *to = buffer + c * TILES + (thread / 32 ^ c) * 4 + thread % 32 / 8;
        if ((thread >> 2 & 1) == step) {
#pragma unroll
            for (int e = 0; e < ELEMENTS; e++) to[e * STEP * TILES] = d[e];
        }
    };
    auto store_filters = [&](float *buffer) {
        float *to = buffer + XS + 4 * (anew((int)threadIdx.x) - (BOTH ? 0 : X_THREADS));
#pragma unroll
        for (int q = 0; q < VECTORS; q++) {
            const Pack<4> v = {{w[4 * q], w[4 * q + 1], w[4 * q + 2], w[4 * q + 3]}};
            store(to + U_THREADS * q * 4, v);
        }
    };

    /* A lane's element, and its channels 4*lo + OUTS/2*g + i, tiles 4*lt + TILES/2*g + j. Neighbouring lanes share
     * a channel's float4 and the next ones a tile's, so that a read of 16 lanes is one of at most 128 bytes. */
    const Lane mine((int)threadIdx.x);
    const int from_x = mine.element * STEP * TILES + 4 * mine.lt, from_u = XS + mine.element * OUTS + 4 * mine.lo;
    float acc[8][8];
#pragma unroll
    for (int m = 0; m < 8; m++)
#pragma unroll
        for (int n = 0; n < 8; n++) acc[m][n] = 0.0f;
    auto multiply = [&](int buffer, int c) {
        const float *a = shared + (buffer + from_u) + c * ELEMENTS * OUTS;
        const float *b = shared + ((buffer + from_x) ^ 4 * c) + c * TILES; /* the groups change places as in `slot` */
        const Pack<4> am[2] = {load<4>(a), load<4>(a + OUTS / 2)}, bn[2] = {load<4>(b), load<4>(b + TILES / 2)};
#pragma unroll
        for (int m = 0; m < 8; m++)
#pragma unroll
            for (int n = 0; n < 8; n++) acc[m][n] = fmaf(am[m / 4].v[m % 4], bn[n / 4].v[n % 4], acc[m][n]);
    };

    /* Loads stand before a barrier, what stores them behind the products after it: else the compiler moves the loads
     * down to the stores, and the threads wait for memory. */
    if (loads_x) {
        load_patch(first, false);
        if (TWICE) load_patch(first, true);
        complete_patch();
        transform_input(d);
        store_patch(shared, 0);
    }
    if (loads_u) {
        load_filters(first);
        store_filters(shared);
        if (first + STEP < end) load_filters(first + STEP);
    }
    int now = 0; /* the half of shared memory that is multiplied: the first or the second step of 8 channels */
    for (int c0 = first + STEP;; c0 += STEP) { /* c0: the next step */
        const bool more = c0 + STEP < end;
        __syncthreads();
#pragma unroll UNROLL
        for (int c = 0; c < STEP; c++) {
            multiply(now, c);
            if (TWICE && c == 1) {
                if (loads_x && now && c0 < end) load_patch(c0, true);
                __syncthreads();
            }
        }
        if (c0 >= end) break;
        now = BUFFER - now;
        const int step = now ? 1 : 0; /* of 8 channels, the next */
        if (loads_x) {
            if (step == 0) {
                complete_patch();
                transform_input(d);
            }
            store_patch(shared + now, step);
            if (step == 1 && more) load_patch(c0 + STEP, false);
        }
        if (loads_u) {
            store_filters(shared + now);
            if (more) load_filters(c0 + STEP);
        }
    }
    __syncthreads();
    const int thread = anew((int)threadIdx.x), warp = thread / 32, lane = thread % 32;
    const int t0 = anew((int)blockIdx.x) * TILES, o0 = anew((int)blockIdx.y) * OUTS;
    const Lane its(thread);

    /* Back through shared memory, [element][quad][tile], in 4 turns: turn i brings channels 4*q + i; then thread
     * (q, my_tile) holds all 16 elements of that channel and tile, after the turns 2 x 2 pixels of 4 neighbouring
     * channels. Groups of 4 tiles change places with the quad, so that neither way meets a bank twice. */
    const int q = lane % 8 + warp % (QUADS / 8) * 8, my_group = warp / (QUADS / 8), my_tile = 4 * my_group + lane / 8;
    auto swapped = [](int group, int quad) { return group ^ (2 * quad + quad / 4 % 2) % 8; };
    float r[4][4]; /* pixel, channel */
#pragma unroll
    for (int i = 0; i < 4; i++) {
#pragma unroll
        for (int g = 0; g < 2; g++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float(&m)[8] = acc[4 * g + i];
                const Pack<4> v = {{m[4 * h], m[4 * h + 1], m[4 * h + 2], m[4 * h + 3]}};
                const int quad = its.lo + LO * g;
                store(shared + (its.element * QUADS + quad) * TILES + swapped(its.lt + LT * h, quad) * 4, v);
            }
        __syncthreads();
        const float *from = shared + q * TILES + swapped(my_group, q) * 4 + lane / 8;
        float t[2][4];
#pragma unroll
        for (int b = 0; b < 4; b++) {
            float m[4];
#pragma unroll
            for (int a = 0; a < 4; a++) m[a] = from[(4 * a + b) * QUADS * TILES];
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
#if MOMENTS
    if (moments) { /* of each tile a row; the threads go on together */
        enum { ROW = RowOf<OUTS>::FLOATS };
        static_assert(TILES * ROW + 2 * THREADS <= 2 * BUFFER, "rows and box fit into the buffers");
        UNPACK_ROW_PLAN
        const int n = divide(min(t0 + my_tile, tiles - 1), by_image);
        const int rest = t0 + my_tile - n * (th * tw), ti = divide(rest, by_row), tj = rest - ti * tw;
        float *row = shared + my_tile * ROW, *box = shared + TILES * ROW;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            const float b = bias && o + c < O ? bias[o + c] : 0.0f;
            const Spread m = moments_of<4>(
                [&](int i) { return t0 + my_tile < tiles && 2 * ti + i / 2 < Ho && 2 * tj + i % 2 < Wo; },
                [&](int i) { return AS_READ(act_apply(ACT, r[i][c] + b, alpha)); });
            store_moments<OUTS>(row, 4 * q + c, m);
        }
        finish_apart<THREADS, OUTS>(shared, TILES, row_plan, (int)blockIdx.x, (int)blockIdx.y, O, box);
    }
#endif
    if (t0 + my_tile >= tiles || o >= O) return;
    const int n = divide(t0 + my_tile, by_image), rest = t0 + my_tile - n * (th * tw), ti = divide(rest, by_row);
    const int i0 = 2 * ti, j0 = 2 * (rest - ti * tw);
    if (SPLIT) out += (size_t)blockIdx.z * N * Ho * Wo * O;
    Pack<4> b = fill<4>(0.0f);
#pragma unroll
    for (int c = 0; c < 4; c++)
        if (bias && o + c < O) b.v[c] = bias[o + c];
#if POOL == 1
    const size_t at = (size_t)(t0 + my_tile) * O + o;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        int winner = 0;
#pragma unroll
        for (int pixel = 1; pixel < 4; pixel++)
            if (r[pixel][c] > r[0][c]) r[0][c] = r[pixel][c], winner = pixel;
        if (o + c < O) {
            put(out + at + c, act_apply(ACT, r[0][c] + b.v[c], alpha));
            if (index) index[at + c] = (u8)winner;
        }
    }
#else
#pragma unroll
    for (int pixel = 0; pixel < 4; pixel++) {
        const int i = i0 + pixel / 2, j = j0 + pixel % 2;
        if (i >= Ho || j >= Wo) continue;
        const size_t at = (((size_t)n * Ho + i) * Wo + j) * O + o;
#pragma unroll
        for (int c = 0; c < 4; c++) r[pixel][c] = act_apply(ACT, r[pixel][c] + b.v[c], alpha);
        if (O % 4 == 0) {
            Pack<4> v = {{r[pixel][0], r[pixel][1], r[pixel][2], r[pixel][3]}};
            if (add) {
                const Pack<4> older = load<4>(add + at);
#pragma unroll
                for (int c = 0; c < 4; c++) v.v[c] += older.v[c];
            }
            store(out + at, v);
        } else {
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (o + c < O) put(out + at + c, add ? get(add + at + c) + r[pixel][c] : r[pixel][c]);
        }
    }
#endif
}
