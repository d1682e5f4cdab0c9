/* conv2d_winograd_wgrad: the weight gradient of 3 x 3 convolutions of stride and dilation 1 with 16 multiplications for
 * each 2 x 2 pixels instead of 36: the adjoint of conv2d_winograd.cu's F(2x2, 3x3), in one kernel.
 *   dw[o,:,:,c] = G' [ sum_t (A g_t,o A') * (B' d_t,c B) ] G    db[o] = sum g    g = dy * act'(y)
 * t: tiles of 2 x 2 pixels of dy, g_t,o; d_t,c: the 4 x 4 pixels of x they see; * element by element, ' transposed
 * x (N,H,W,C)   dy, y (N,Ho,Wo,O), stored as REAL   dw (O,3,3,C)   db (O)   part: scratch, float32
 * With POOL, dy, y and index (u8) are those after a max pool of 2 x 2, (N,Ho/2,Wo/2,O): index names the one pixel of
 * the tile, row*2 + column, that dy belongs to.
 *
 * The 16 elements of a tile fall into two halves of 8, rows 0 and 1 and rows 2 and 3 of the 4 x 4; both are sums over 3
 * of the 4 rows of d. A crew of threads makes a half of OUTS x 32 (o, c); one half of its warps loads x, the other dy,
 * OUTS/16 tiles a step, transforming them on the way to shared memory; then every lane multiplies 8 x 8 of one element.
 * A warp walks along a row of tiles, so that of 4 x 4 pixels it loads but the 2 new columns.
 * Macros    OUTS   32 or 64 outputs to a block       HALVES  1: a block is one crew, 2: it is both
 *           MASK   activation whose mask dy takes    VO      2: dy is loaded in pairs, O is even; else 1
 *           POOL   0 or 1
 * Launch    grid (ceil(O/OUTS) * ceil(C/32), splits, 2/HALVES), block HALVES * 4 * OUTS
 *           a split takes OUTS/16*steps tiles; if there is more than one part, part[split * (2/HALVES) + half] takes
 *           9*O*C + O sums and conv2d_sum_f32 adds them up; else dw, db are written, or with `accumulate` added to
 * Edges     any padding, H, W, C, O; x, dy below 2^31 elements      Aliasing  none      Order  fixed for given splits
 * Cost      2/2.25 N Ho Wo O 9 C operations; a lane loads 16 floats for 64 of its multiplications
 */
#include "gemm.cuh"

enum {
    INS = 32,
    LO = OUTS / 8, CREW = 8 * LO * (INS / 8), THREADS = HALVES * CREW, /* LO x 4 lanes to an element */
    STEP = CREW / 64,             /* tiles that are multiplied between two barriers: two warps load one */
    ROW = OUTS + INS,             /* one element of one tile: gradients, then inputs */
    CREW_FLOATS = STEP * 8 * ROW, /* [tile][element][ROW] */
    BUFFER = HALVES * CREW_FLOATS,
    BACK = INS + 8,               /* pitch of the sums' way back, [element][LO][BACK] */
    BACK_FLOATS = HALVES * HALVES * 8 * LO * BACK,
    NEAR = OUTS / 32              /* neighbouring outputs that a thread loads */
};

/* A warp's way through its tiles, over x or over dy. */
struct Walk {
    int tile;
    int away;      /* of the next pixel to load from the first, at this thread's channel; within 31 bits */
    int left;      /* tiles before it turns to the next row of tiles */
    unsigned rows; /* a bit for each row of pixels that exists, and FRESH after a turn */
};
enum { FRESH = 8 };

extern "C" __global__ void __launch_bounds__(THREADS, 2 / HALVES * (64 / OUTS)) winograd_wgrad_f32(
    const real *__restrict__ dy, const real *__restrict__ y, const u8 *__restrict__ index, const real *__restrict__ x,
    float *dw, float *db, float *__restrict__ part, int N, int H, int W, int C, int O, int Ho, int Wo, int top,
    int left, int th, int tw, int tiles, unsigned image_mul, int image_shift, unsigned row_mul, int row_shift,
    int steps, int accumulate, float alpha)
{
    wait_for_last_launch();
    __shared__ __align__(16) float shared[2 * BUFFER > BACK_FLOATS ? 2 * BUFFER : BACK_FLOATS];
    const Divisor by_image = {image_mul, image_shift}, by_row = {row_mul, row_shift};
    const int pieces = (C + INS - 1) / INS;
    const int c0 = (int)blockIdx.x % pieces * INS, o0 = (int)blockIdx.x / pieces * OUTS;
    const int half = HALVES == 2 ? (int)threadIdx.x / CREW : (int)blockIdx.z;
    const int warp = (int)threadIdx.x % CREW / 32, lane = (int)threadIdx.x % 32;
    const int k = warp % STEP; /* which of a step's tiles this warp loads: of x, or of dy */
    const bool loads_x = warp < STEP;
    const int mine = loads_x ? c0 + lane : o0 + NEAR * lane;            /* the first channel this thread loads */
    const int to = k * 8 * ROW + (loads_x ? OUTS + lane : NEAR * lane); /* where its first value goes */

    /* What is under way to shared memory. x: 3 rows of columns 0 and 1 (after a turn), 3 rows of columns 2 and 3, and
     * B' d of the last two columns; dy: 4 pixels and their y, NEAR of each. */
    float r[16];
    float sum[NEAR]; /* of dy */
#pragma unroll
    for (int j = 0; j < NEAR; j++) sum[j] = 0.0f;

    Walk at;
    at.tile = ((int)blockIdx.y * STEP + k) * steps;
    at.left = 0;
    auto load_x = [&]() {
        if (at.left == 0) {
            const int n = divide(at.tile, by_image), rest = at.tile - n * (th * tw), ti = divide(rest, by_row);
            const int tj = rest - ti * tw, i = 2 * ti - top + half;
            at.left = tw - tj;
            at.away = ((n * H + i) * W + 2 * tj - left) * C + mine;
            at.rows = FRESH;
#pragma unroll
            for (int a = 0; a < 3; a++) at.rows |= (unsigned)(mine < C && (unsigned)(i + a) < (unsigned)H) << a;
        } else
            at.rows &= ~FRESH;
        if (at.tile >= tiles) at.rows = FRESH;
        const int column = 2 * (tw - at.left) - left;
        auto two_columns = [&](int b) {
            const real *const p = x + (ptrdiff_t)at.away;
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const bool seen = (unsigned)(column + b + e) < (unsigned)W;
#pragma unroll
                for (int a = 0; a < 3; a++) {
                    const real *q = p + a * (W * C) + e * C;
                    r[3 * (b + e) + a] = seen && (at.rows >> a & 1) != 0 ? get(q) : 0.0f;
                }
            }
            at.away += 2 * C;
        };
        if (at.rows & FRESH) two_columns(0);
        two_columns(2);
        at.tile++;
        at.left--;
    };
    auto load_dy = [&]() {
        if (at.left == 0) {
            const int n = divide(at.tile, by_image), rest = at.tile - n * (th * tw), ti = divide(rest, by_row);
            const int tj = rest - ti * tw;
            at.left = tw - tj;
            at.away = (POOL ? at.tile : (n * Ho + 2 * ti) * Wo + 2 * tj) * O + mine;
            at.rows = mine >= O ? 0 : 2 * ti + 1 < Ho ? 3 : 1;
        }
        if (at.tile >= tiles) at.rows = 0;
        const int column = 2 * (tw - at.left);
        const real *const p = dy + (ptrdiff_t)at.away, *const py = y + (ptrdiff_t)at.away;
#pragma unroll
        for (int pixel = 0; pixel < (POOL ? 1 : 4); pixel++) {
            const bool inside = (at.rows >> pixel / 2 & 1) != 0 && (POOL || column + pixel % 2 < Wo);
            const int offset = (pixel / 2 * Wo + pixel % 2) * O;
            const real *const q = p + offset, *const to_y = py + offset;
            float *const g = r + pixel * NEAR, *const v = g + 4 * NEAR;
            if (VO == NEAR) {
                Pack<NEAR> values = fill<NEAR>(0.0f), outputs = values;
                if (inside) values = load<NEAR>(q);
                if (inside && MASK) outputs = load<NEAR>(to_y);
#pragma unroll
                for (int j = 0; j < NEAR; j++) g[j] = values.v[j], v[j] = outputs.v[j];
            } else {
#pragma unroll
                for (int j = 0; j < NEAR; j++) {
                    const bool here = inside && mine + j < O;
                    g[j] = here ? get(q + j) : 0.0f;
                    v[j] = here && MASK ? get(to_y + j) : 0.0f;
                }
            }
            if (POOL) {
#pragma unroll
                for (int j = 0; j < NEAR; j++)
                    g[NEAR + j] = __int_as_float(inside && mine + j < O ? index[(ptrdiff_t)at.away + j] : 0);
            }
        }
        at.away += POOL ? O : 2 * O;
        at.tile++;
        at.left--;
    };
    auto store_x = [&](float *buffer) {
        float p[4], q[4]; /* the half's outer row (0 or 3) and inner row (1 or 2) of B' d */
        auto column = [&](int b) {
            p[b] = r[3 * b] - r[3 * b + 2];
            q[b] = r[3 * b + 1] + (half ? -r[3 * b] : r[3 * b + 2]);
        };
        if (at.rows & FRESH)
            column(0), column(1);
        else
            p[0] = r[12], p[1] = r[13], q[0] = r[14], q[1] = r[15];
        column(2), column(3);
        r[12] = p[2], r[13] = p[3], r[14] = q[2], r[15] = q[3];
        float *out = buffer + to;
        auto row = [&](const float (&d)[4]) {
            out[0] = d[0] - d[2], out[ROW] = d[1] + d[2], out[2 * ROW] = d[2] - d[1], out[3 * ROW] = d[1] - d[3];
            out += 4 * ROW;
        };
        row(p);
        row(q);
    };
    auto store_dy = [&](float *buffer) {
        float g[NEAR][4];
#pragma unroll
        for (int pixel = 0; pixel < 4; pixel++)
#pragma unroll
            for (int j = 0; j < NEAR; j++) {
                const int from = (POOL ? 0 : pixel) * NEAR + j;
                g[j][pixel] = act_mask(MASK, r[from], r[from + 4 * NEAR], alpha);
                if (POOL && __float_as_int(r[NEAR + j]) != pixel) g[j][pixel] = 0.0f;
            }
        Pack<NEAR> e[8];
#pragma unroll
        for (int j = 0; j < NEAR; j++) {
            float p[2], q[2]; /* the outer and the inner row of A g */
#pragma unroll
            for (int b = 0; b < 2; b++) {
                const float second = half ? -g[j][2 + b] : g[j][2 + b];
                p[b] = half ? second : g[j][b];
                q[b] = g[j][b] + second;
            }
            e[0].v[j] = p[0], e[1].v[j] = p[0] + p[1], e[2].v[j] = p[0] - p[1], e[3].v[j] = -p[1];
            e[4].v[j] = q[0], e[5].v[j] = q[0] + q[1], e[6].v[j] = q[0] - q[1], e[7].v[j] = -q[1];
            sum[j] += e[5].v[j]; /* half 0: all four pixels */
        }
#pragma unroll
        for (int i = 0; i < 8; i++) store(buffer + to + i * ROW, e[i]);
    };
    auto load_step = [&]() {
        if (loads_x)
            load_x();
        else
            load_dy();
    };
    auto store_step = [&](float *buffer) {
        if (loads_x)
            store_x(buffer);
        else
            store_dy(buffer);
    };

    /* This lane's element, and its outputs 4*lo + OUTS/2*g + i and inputs 4*lc + 16*g + j. Neighbouring lanes share
     * an output's float4 and the next ones an input's, so that a read of 16 lanes is one of 128 bytes. */
    const int sub = lane % (4 * LO), element = warp * 32 / (4 * LO) + lane / (4 * LO);
    const int lo = sub / 2 % LO, lc = sub % 2 + sub / (2 * LO) * 2;
    float acc[8][8];
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) acc[i][j] = 0.0f;

    int now = HALVES == 2 ? half * CREW_FLOATS : 0; /* where this crew's present step is in shared memory */
    const int both = BUFFER + 2 * now, to_a = element * ROW + 4 * lo, to_b = element * ROW + OUTS + 4 * lc;
    load_step();
    store_step(shared + now);
    for (int left_over = steps; left_over > 0; left_over--) {
        if (left_over > 1) load_step(); /* before the barrier, so that the compiler leaves it before the products */
        __syncthreads();
        const float *a = shared + now + to_a, *b = shared + now + to_b;
#pragma unroll
        for (int i = 0; i < STEP; i++, a += 8 * ROW, b += 8 * ROW) {
            const Pack<4> am[2] = {load<4>(a), load<4>(a + OUTS / 2)}, bn[2] = {load<4>(b), load<4>(b + 16)};
#pragma unroll
            for (int m = 0; m < 8; m++)
#pragma unroll
                for (int n = 0; n < 8; n++) acc[m][n] = fmaf(am[m / 4].v[m % 4], bn[n / 4].v[n % 4], acc[m][n]);
        }
        now = both - now;
        if (left_over > 1) store_step(shared + now);
    }
    __syncthreads();

    bool older = accumulate != 0;
    if (part) {
        const size_t values = (size_t)O * 9 * C;
        dw = part + ((size_t)blockIdx.y * gridDim.z + blockIdx.z) * (values + (db ? O : 0));
        if (db) db = dw + values;
        older = false;
    }
    if (db && c0 == 0) { /* the sums of the warps that loaded different tiles; half 1 has none */
        if (!loads_x && (HALVES == 1 || half == 0)) {
#pragma unroll
            for (int j = 0; j < NEAR; j++) shared[k * OUTS + NEAR * lane + j] = half == 0 ? sum[j] : 0.0f;
        }
        __syncthreads();
        const int i = (int)threadIdx.x;
        if (i < OUTS && o0 + i < O) {
            float s = shared[i];
#pragma unroll
            for (int warps = 1; warps < STEP; warps++) s += shared[warps * OUTS + i];
            db[o0 + i] = older ? db[o0 + i] + s : s;
        }
        __syncthreads();
    }

    /* Back through shared memory: a turn brings HALVES of the 8 rows of every lane, then a thread holds all elements of
     * one (o, c). */
    const int back_row = (int)threadIdx.x / (LO * 32), back_lo = (int)threadIdx.x / 32 % LO;
#pragma unroll
    for (int turns = 0; turns < 8 / HALVES; turns++) {
#pragma unroll
        for (int i = 0; i < HALVES; i++)
#pragma unroll
            for (int g = 0; g < 2; g++) {
                const float(&a)[8] = acc[HALVES * turns + i];
                const Pack<4> four = {{a[4 * g], a[4 * g + 1], a[4 * g + 2], a[4 * g + 3]}};
                const int team = HALVES == 2 ? half : 0;
                store(shared + (((team * HALVES + i) * 8 + element) * LO + lo) * BACK + 4 * lc + 16 * g, four);
            }
        __syncthreads();
        float u[3][4] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
#pragma unroll
        for (int team = 0; team < HALVES; team++)
#pragma unroll
            for (int b = 0; b < 4; b++) {
                const bool second = HALVES == 2 ? team == 1 : half == 1;
                const float *m = shared + (((team * HALVES + back_row) * 8 + b) * LO + back_lo) * BACK + lane;
                const float p = m[0], q = 0.5f * m[4 * LO * BACK];
                u[0][b] += second ? q : p + q;
                u[1][b] += second ? -q : q;
                u[2][b] += second ? p + q : q;
            }
        const int i = HALVES * turns + back_row, out = o0 + 4 * back_lo + OUTS / 2 * (i / 4) + i % 4;
        if (out < O && c0 + lane < C) {
            float *to = dw + (size_t)out * 9 * C + c0 + lane;
#pragma unroll
            for (int a = 0; a < 3; a++) {
                const float q = 0.5f * (u[a][1] + u[a][2]);
                const float taps[3] = {u[a][0] + q, 0.5f * (u[a][1] - u[a][2]), q + u[a][3]};
#pragma unroll
                for (int b = 0; b < 3; b++, to += C) *to = older ? *to + taps[b] : taps[b];
            }
        }
        __syncthreads();
    }
}
