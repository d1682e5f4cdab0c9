/* softmax: each row becomes probabilities.
 *   forward    y[r,c] = e^(x[r,c] - m) / sum_c e^(x[r,c] - m),  m = max_c x[r,c]
 *   backward   dx[r,c] = add[r,c] + y[r,c] * (dy[r,c] - sum_c dy[r,c] y[r,c])
 * all (R, C)   real; add NULL: nothing is added
 * Macros    LANES, PER (rows.cuh); VEC: 4 where C is a multiple of 4, else 1
 * Launch    rows.cuh
 * Aliasing  y may be x; dx may be dy or add: a thread reads and writes the same elements
 * Order     rows.cuh
 * Cost      each array once; with LANES = 0 the later passes find the row in the cache
 */
#include "rows.cuh"

enum { V = VEC };

#if LANES

extern "C" __global__ void __launch_bounds__(128) softmax_forward_f32(const real *x, real *y, int R, int C)
{
    wait_for_last_launch();
    const Place at = place();
    for (int base = at.base; base < R; base += at.step) {
        const int r = base + at.team;
        Row row = load_row(x + (size_t)r * C, at.lane, C, r < R, -infinity());
        float top = -infinity(), sum = 0.0f;
        EACH(j, k) top = fmaxf(top, row.p[j].v[k]);
        top = team_max(top);
        EACH(j, k) sum += row.p[j].v[k] = expf(row.p[j].v[k] - top);
        const float share = 1.0f / team_sum(sum);
        EACH(j, k) row.p[j].v[k] *= share;
        store_row(y + (size_t)r * C, at.lane, C, r < R, row);
    }
}

extern "C" __global__ void __launch_bounds__(128) softmax_backward_f32(
    const real *dy, const real *y, const real *add, real *dx, int R, int C)
{
    wait_for_last_launch();
    const Place at = place();
    for (int base = at.base; base < R; base += at.step) {
        const int r = base + at.team;
        const Row out = load_row(y + (size_t)r * C, at.lane, C, r < R, 0.0f);
        Row row = load_row(dy + (size_t)r * C, at.lane, C, r < R, 0.0f);
        float dot = 0.0f;
        EACH(j, k) dot = fmaf(row.p[j].v[k], out.p[j].v[k], dot);
        dot = team_sum(dot);
        EACH(j, k) row.p[j].v[k] = out.p[j].v[k] * (row.p[j].v[k] - dot);
        if (add) {
            const Row older = load_row(add + (size_t)r * C, at.lane, C, r < R, 0.0f);
            EACH(j, k) row.p[j].v[k] += older.p[j].v[k];
        }
        store_row(dx + (size_t)r * C, at.lane, C, r < R, row);
    }
}

#else

extern "C" __global__ void __launch_bounds__(512) softmax_forward_f32(const real *x, real *y, int R, int C)
{
    wait_for_last_launch();
    __shared__ float box[32];
    for (int r = blockIdx.x; r < R; r += gridDim.x) {
        const real *from = x + (size_t)r * C;
        real *to = y + (size_t)r * C;
        float top = -infinity(), sum = 0.0f;
        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
            const Pack<V> p = load<V>(from + c);
#pragma unroll
            for (int k = 0; k < V; k++) top = fmaxf(top, p.v[k]);
        }
        top = block_max(top, box);
        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
            const Pack<V> p = load<V>(from + c);
#pragma unroll
            for (int k = 0; k < V; k++) sum += expf(p.v[k] - top);
        }
        const float share = 1.0f / block_sum(sum, box);
        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
            Pack<V> p = load<V>(from + c);
#pragma unroll
            for (int k = 0; k < V; k++) p.v[k] = expf(p.v[k] - top) * share;
            store(to + c, p);
        }
    }
}

extern "C" __global__ void __launch_bounds__(512) softmax_backward_f32(
    const real *dy, const real *y, const real *add, real *dx, int R, int C)
{
    wait_for_last_launch();
    __shared__ float box[32];
    for (int r = blockIdx.x; r < R; r += gridDim.x) {
        const size_t row = (size_t)r * C;
        float dot = 0.0f;
        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
            const Pack<V> d = load<V>(dy + row + c), out = load<V>(y + row + c);
#pragma unroll
            for (int k = 0; k < V; k++) dot = fmaf(d.v[k], out.v[k], dot);
        }
        dot = block_sum(dot, box);
        for (int c = threadIdx.x * V; c < C; c += blockDim.x * V) {
            Pack<V> d = load<V>(dy + row + c);
            const Pack<V> out = load<V>(y + row + c), older = add ? load<V>(add + row + c) : fill<V>(0.0f);
#pragma unroll
            for (int k = 0; k < V; k++) d.v[k] = fmaf(out.v[k], d.v[k] - dot, older.v[k]);
            store(dx + row + c, d);
        }
    }
}

#endif
