/* load: one batch from a data set that lies on the card: gathered, augmented if asked, normalised, with its answers.
 *   s = order[cursor * batch + n]          x[n,i] = (set[s,i] - mean[i mod C]) / std[i mod C]
 *   target[n,j] = labels[s,j]              words of 4 bytes, int32 or float32 alike
 * set (count, D) bytes or float32   labels (count, T)   order int32, NULL: s = cursor * batch + n   x (rows, D) real
 * target (rows, T), labels NULL: none wanted   mean, std (C), NULL: x = set
 * step: its cursor; NULL: 0. rows may be below batch at the end of a set. Past the end of the set its last sample
 * stands in: no launch reads outside.
 * With AUGMENT a sample is a picture (H, W, C) and changes as trainer/data/augment.py defines it:
 *   x[n,i,j,c] = 0 inside the cut-out square, else the normalised set[s,u,v,c] with u = i - dy, v = j - dx; 0 where
 *   that is outside the picture, or with `reflect` the pixel as far inside; then H - 1 - u, W - 1 - v if mirrored
 *   drawn: whose seed, micro-step and epoch the changes follow   numbers (rows) int32: the samples' places in the whole
 *   data set, for the alternate flip; NULL: s
 * Macros    VEC: 4 where D is a multiple of 4, else 1   AUGMENT: 1 for the kernels that augment, which take no VEC
 * Launch    grid: any; block: any. AUGMENT: a block has samples blockIdx.x, + gridDim.x, ..., of each the pixels of its
 *           blockIdx.y; a thread draws its sample's changes by itself, one Philox call (two for the alternate flip)
 * Aliasing  none
 * Order     one subtraction and one division a value, as the device does it: equal bits everywhere
 * Cost      D bytes (4 D for float32) read and 4 D (Half 2 D) written a sample
 */
#include "common.cuh"

/* Where sample n of the batch lies in the set. */
__device__ __forceinline__ int place_of(const int *order, int start, int n, int count)
{
    const int place = min(start + n, count - 1);
    return order ? order[place] : place;
}

/* Thread `first` of `stride` copies its share of the answers. */
__device__ __forceinline__ void copy_answers(
    const u32 *labels, const int *order, int start, u32 *target, int rows, int count, int words, u32 first, u32 stride)
{
    if (!labels) return;
    for (u32 i = first; i < (u32)(rows * words); i += stride) {
        const u32 n = i / words;
        target[i] = labels[(size_t)place_of(order, start, n, count) * words + (i - n * words)];
    }
}

#if AUGMENT

enum { MIRROR = 1, UPSIDE_DOWN = 2, ALTERNATE = 4 }; /* bits of `flip` */

struct Changes { int mirror, upside_down, dy, dx, top, left; };

/* A whole number from 0 to n - 1. */
__device__ __forceinline__ u32 below(u32 word, u32 n) { return (u32)((u64)word * n >> 32); }

__device__ __forceinline__ Changes changes(
    const Step *drawn, u32 n, u32 number, int flip, u32 translate, int cutout, int H, int W)
{
    const u32 low = drawn->seed[0], high = drawn->seed[1], side = 2 * translate + 1;
    const Words words = philox(n, drawn->micro[0], drawn->micro[1], STREAM_AUGMENT, low, high);
    const u32 shift = below(words.w[1], side * side);
    Changes to;
    to.mirror = flip & MIRROR && words.w[0] >> 31;
    to.upside_down = flip & UPSIDE_DOWN && words.w[0] >> 30 & 1;
    if (flip & ALTERNATE) to.mirror = (philox(number, 0, 0, STREAM_FLIP, low, high).w[0] >> 31 ^ drawn->epoch) & 1;
    to.dy = (int)(shift / side) - (int)translate;
    to.dx = (int)(shift % side) - (int)translate;
    to.top = (int)below(words.w[2], H) - cutout / 2;
    to.left = (int)below(words.w[3], W) - cutout / 2;
    return to;
}

/* u or, where it is outside 0..n-1 by less than n, its mirror image in the first or last pixel. */
__device__ __forceinline__ int reflected(int u, int n) { return u < 0 ? -u : u >= n ? 2 * n - 2 - u : u; }

template <class T>
__device__ __forceinline__ void gather(
    const T *set, const u32 *labels, const int *order, const Step *step, const float *mean, const float *std, real *x,
    u32 *target, int rows, int batch, int count, int words, const Step *drawn, const int *numbers, int H, int W, int C,
    int flip, int translate, int reflect, int cutout)
{
    const u32 line = blockIdx.y * blockDim.x + threadIdx.x, pixels = H * W, stride = gridDim.y * blockDim.x;
    const int start = step ? step->cursor * batch : 0;
    for (int n = blockIdx.x; n < rows; n += gridDim.x) {
        const int s = place_of(order, start, n, count);
        const Changes to = changes(drawn, n, numbers ? numbers[n] : s, flip, translate, cutout, H, W);
        const T *from = set + (size_t)s * pixels * C;
        real *out = x + (size_t)n * pixels * C;
        for (u32 p = line; p < pixels; p += stride) {
            const int i = p / W, j = p - i * W;
            int u = i - to.dy, v = j - to.dx;
            bool blank = (u32)(i - to.top) < (u32)cutout && (u32)(j - to.left) < (u32)cutout;
            if (reflect) {
                u = reflected(u, H);
                v = reflected(v, W);
            } else
                blank |= u < 0 || u >= H || v < 0 || v >= W;
            if (to.upside_down) u = H - 1 - u;
            if (to.mirror) v = W - 1 - v;
            for (int c = 0; c < C; c++) {
                float value = blank ? 0.0f : (float)from[((size_t)u * W + v) * C + c];
                if (mean && !blank) value = (value - mean[c]) / std[c];
                put(out + (size_t)p * C + c, value);
            }
        }
    }
    const u32 block = blockIdx.y * gridDim.x + blockIdx.x;
    copy_answers(labels, order, start, target, rows, count, words, block * blockDim.x + threadIdx.x,
                 gridDim.x * gridDim.y * blockDim.x);
}

extern "C" __global__ void load_augmented_u8_f32(
    const u8 *__restrict__ set, const u32 *__restrict__ labels, const int *__restrict__ order,
    const Step *__restrict__ step, const float *__restrict__ mean, const float *__restrict__ std, real *__restrict__ x,
    u32 *__restrict__ target, int rows, int batch, int count, int words, const Step *__restrict__ drawn,
    const int *__restrict__ numbers, int H, int W, int C, int flip, int translate, int reflect, int cutout)
{
    gather(set, labels, order, step, mean, std, x, target, rows, batch, count, words, drawn, numbers, H, W, C, flip,
           translate, reflect, cutout);
}

extern "C" __global__ void load_augmented_f32_f32(
    const float *__restrict__ set, const u32 *__restrict__ labels, const int *__restrict__ order,
    const Step *__restrict__ step, const float *__restrict__ mean, const float *__restrict__ std, real *__restrict__ x,
    u32 *__restrict__ target, int rows, int batch, int count, int words, const Step *__restrict__ drawn,
    const int *__restrict__ numbers, int H, int W, int C, int flip, int translate, int reflect, int cutout)
{
    gather(set, labels, order, step, mean, std, x, target, rows, batch, count, words, drawn, numbers, H, W, C, flip,
           translate, reflect, cutout);
}

#else

enum { V = VEC };

__device__ __forceinline__ Pack<V> values(const float *p) { return load<V>(p); }

__device__ __forceinline__ Pack<V> values(const u8 *p)
{
    const u32 bytes = V == 4 ? *reinterpret_cast<const u32 *>(p) : *p;
    Pack<V> out;
#pragma unroll
    for (int k = 0; k < V; k++) out.v[k] = (float)(bytes >> 8 * k & 255);
    return out;
}

template <class T>
__device__ __forceinline__ void gather(
    const T *set, const u32 *labels, const int *order, const Step *step, const float *mean, const float *std, real *x,
    u32 *target, int rows, int batch, int count, int D, int C, int words)
{
    const u32 stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x, units = D / V;
    const int start = step ? step->cursor * batch : 0;
    for (u32 q = first; q < rows * units; q += stride) {
        const u32 n = q / units, i = (q - n * units) * V;
        Pack<V> v = values(set + (size_t)place_of(order, start, n, count) * D + i);
        if (mean) {
            int c = C == 1 ? 0 : i % C;
#pragma unroll
            for (int k = 0; k < V; k++) {
                v.v[k] = (v.v[k] - mean[c]) / std[c];
                c = c + 1 == C ? 0 : c + 1;
            }
        }
        store(x + (size_t)n * D + i, v);
    }
    copy_answers(labels, order, start, target, rows, count, words, first, stride);
}

extern "C" __global__ void load_u8_f32(
    const u8 *__restrict__ set, const u32 *__restrict__ labels, const int *__restrict__ order,
    const Step *__restrict__ step, const float *__restrict__ mean, const float *__restrict__ std, real *__restrict__ x,
    u32 *__restrict__ target, int rows, int batch, int count, int D, int C, int words)
{
    gather(set, labels, order, step, mean, std, x, target, rows, batch, count, D, C, words);
}

extern "C" __global__ void load_f32_f32(
    const float *__restrict__ set, const u32 *__restrict__ labels, const int *__restrict__ order,
    const Step *__restrict__ step, const float *__restrict__ mean, const float *__restrict__ std, real *__restrict__ x,
    u32 *__restrict__ target, int rows, int batch, int count, int D, int C, int words)
{
    gather(set, labels, order, step, mean, std, x, target, rows, batch, count, D, C, words);
}

#endif
