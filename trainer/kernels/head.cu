/* head: the last linear layer, cross entropy, and the layer's gradients, in one launch: for nets so small that launches
 * are what they wait for.
 *   z[n,o] = b[o] + sum_i x[n,i] w[o,i]      loss, correct, dz = those of cross_entropy (losses.cu); z, dz stay inside
 *   dx[n,i] = add[n,i] + sum_o dz[n,o] w[o,i]
 *   dw[o,i] = sum_n dz[n,o] x[n,i]   db[o] = sum_n dz[n,o]   each added to what is there if `accumulate`
 * x, dx, add (N,I) real   w, dw (O,I)   b, db (O)   float32   target (N) int32   loss, correct, history: losses.cu
 * NULL: b, class weights, add, dx (not wanted), db (not wanted)
 *
 * Macros    HI, HO   I and O (at most 32)    VI   4 where I is a multiple of 4, else 1
 * Launch    grid: blocks that share the rows out by eights; block 256: a warp takes a row at a time. part: for each
 *           block 2 words, then HO * HI + HO floats
 * Edges     any N        Aliasing  dx may be add; nothing else overlaps
 * Order     fixed for a given grid: rows in ascending order in a block, then the blocks
 * Cost      6 N I O operations; the last block reads all parts
 */
#include "losses.cuh"

enum { I = HI, O = HO, ROWS = 8, THREADS = 32 * ROWS, SUMS = O * I + O, MINE = (SUMS + THREADS - 1) / THREADS };

/* count floats to shared memory. */
template <class S>
__device__ __forceinline__ void stage(float *shared, const S *from, int count, int thread, int threads)
{
    for (int e = VI * thread; e < count; e += VI * threads) store(shared + e, load<VI>(from + e));
}

/* The z of a row into zs, by one warp: lanes share the sums over I. */
__device__ __forceinline__ void row_outputs(const float *x, const float *ws, const float *b, float *zs, int lane)
{
    float acc[O];
#pragma unroll
    for (int o = 0; o < O; o++) acc[o] = 0.0f;
    for (int i = lane * VI; i < I; i += 32 * VI) {
        const Pack<VI> xv = load<VI>(x + i);
#pragma unroll
        for (int o = 0; o < O; o++) {
            const Pack<VI> wv = load<VI>(ws + o * I + i);
#pragma unroll
            for (int v = 0; v < VI; v++) acc[o] = fmaf(xv.v[v], wv.v[v], acc[o]);
        }
    }
    float mine = 0.0f;
#pragma unroll
    for (int o = 0; o < O; o++) {
        const float sum = warp_sum(acc[o]);
        if (lane == o) mine = sum;
    }
    if (lane < O) zs[lane] = mine + (b ? b[lane] : 0.0f);
}

/* dx of a row, by one warp; dz[ROWS * o] is the gradient of z[o]. */
__device__ __forceinline__ void row_gradient(const float *dz, const float *ws, const real *add, real *dx, int lane)
{
    for (int i = lane * VI; i < I; i += 32 * VI) {
        Pack<VI> s = fill<VI>(0.0f);
#pragma unroll
        for (int o = 0; o < O; o++) {
            const Pack<VI> wv = load<VI>(ws + o * I + i);
#pragma unroll
            for (int v = 0; v < VI; v++) s.v[v] = fmaf(dz[ROWS * o], wv.v[v], s.v[v]);
        }
        if (add) {
            const Pack<VI> older = load<VI>(add + i);
#pragma unroll
            for (int v = 0; v < VI; v++) s.v[v] += older.v[v];
        }
        store(dx + i, s);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) head_f32(
    const real *__restrict__ x, const float *__restrict__ w, const float *__restrict__ b,
    const int *__restrict__ target, const float *__restrict__ class_weights, const real *add, real *dx, float *dw,
    float *db, BATCH, int N, int accumulate, float smoothing)
{
    __shared__ __align__(16) float xs[ROWS * I], ws[O * I], zs[ROWS][O], dzs[O * ROWS]; /* dzs[o][row] */
    __shared__ float boxes[64];
    const Batch out = MAKE_BATCH;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    stage(ws, w, O * I, (int)threadIdx.x, THREADS);
    const float W = batch_weight(target, class_weights, N, boxes);
    const float inverse = W > 0.0f ? 1.0f / W : 0.0f, spread = smoothing / (float)O;
    const float scaled = scaling ? inverse * scaling->scale : inverse;
    float sums[MINE], sum = 0.0f;
    int right = 0;
#pragma unroll
    for (int k = 0; k < MINE; k++) sums[k] = 0.0f;
    for (int n0 = (int)blockIdx.x * ROWS; n0 < N; n0 += (int)gridDim.x * ROWS) {
        const int n = n0 + warp, width = n < N ? O : 0, t = n < N ? target[n] : 0;
        float *row = xs + warp * I;
        if (width) stage(row, x + (size_t)n * I, I, lane, 32);
        __syncthreads(); /* x and, the first time, w are there */
        if (width) {
            row_outputs(row, ws, b, zs[warp], lane);
            __syncwarp();
            const RowLoss got = cross_entropy_row(zs[warp], zs[warp], O, t, class_weights, smoothing, spread, scaled,
                                                  lane, 32);
            if (lane == 0) {
                sum += got.each;
                right += got.right;
            }
            __syncwarp();
        }
        if (lane < O) dzs[lane * ROWS + warp] = width ? zs[warp][lane] : 0.0f;
        __syncthreads();
        if (width && dx) row_gradient(dzs + warp, ws, add ? add + (size_t)n * I : nullptr, dx + (size_t)n * I, lane);
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            const int e = (int)threadIdx.x + k * THREADS, o = e < O * I ? e / I : e - O * I, i = e % I;
            if (e >= SUMS) continue;
            const Pack<4> low = load<4>(dzs + o * ROWS), high = load<4>(dzs + o * ROWS + 4);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                if (n0 + r < N) {
                    const float dz = r < 4 ? low.v[r % 4] : high.v[r % 4];
                    sums[k] = e < O * I ? fmaf(dz, xs[r * I + i], sums[k]) : sums[k] + dz;
                }
        }
        __syncthreads(); /* xs and dzs are used up */
    }
    float *parts = part + 2 * gridDim.x;
#pragma unroll
    for (int k = 0; k < MINE; k++) {
        const int e = (int)threadIdx.x + k * THREADS;
        if (e < SUMS) parts[(size_t)blockIdx.x * SUMS + e] = sums[k];
    }
    if (!finish(W > 0.0f ? sum : 0.0f, right, inverse, out, boxes)) return;
#pragma unroll
    for (int k = 0; k < MINE; k++) {
        const int e = (int)threadIdx.x + k * THREADS;
        if (e >= SUMS || (e >= O * I && !db)) continue;
        float s = 0.0f;
#pragma unroll 8
        for (int z = 0; z < (int)gridDim.x; z++) s += parts[(size_t)z * SUMS + e];
        float *to = e < O * I ? dw + e : db + (e - O * I);
        *to = accumulate ? *to + s : s;
    }
}
