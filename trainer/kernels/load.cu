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
 *   angle, zoom: the largest turn in 2^-24 of a full one and change of size in 2^-16; with either, (u, v) is turned
 *   about the middle as trainer/data/warp.py says, and the value is made of the four pixels around it
 *   light, contrast, saturation, tint: the largest changes of colour, before normalisation
 *   With MIX, what the batch's sample rows - 1 - n has become is blended in, or put into a rectangle, as drawn->blend
 *   and its box say (trainer/data/mix.py)
 *   drawn: whose seed, micro-step and epoch the changes follow   numbers (rows) int32: the samples' places in the whole
 *   data set, for the alternate flip; NULL: s
 * Macros    VEC: 4 where D is a multiple of 4, else 1   AUGMENT: 1 for the kernels that augment, which take no VEC
 *           with it FULL: 1 for all changes, else moves by whole pixels and the square only; MIX: 1 with FULL
 * Launch    grid: any; block: any. AUGMENT: a block has samples blockIdx.x, + gridDim.x, ..., of each the pixels of its
 *           blockIdx.y; a thread draws its sample's changes by itself, one Philox call (two for the alternate flip, two
 *           more with FULL)
 * Aliasing  none
 * Order     one subtraction and one division a value, as the device does it, and no sum of a product in one rounding:
 *           equal bits everywhere
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

typedef long long i64;

struct Changes {
    int mirror, upside_down, dy, dx, top, left;
    i64 cos, sin;
    float light, contrast, saturation, tints[4];
};

/* What the kernels that augment take besides: augment.py's Augmentation, in its units. */
#define WISHES int H, int W, int C, int flip, int translate, int reflect, int cutout, int angle, int zoom, \
               float light, float contrast, float saturation, float tint
#define WISHED H, W, C, flip, translate, reflect, cutout, angle, zoom, light, contrast, saturation, tint

/* A whole number from 0 to n - 1. */
__device__ __forceinline__ u32 below(u32 word, u32 n) { return (u32)((u64)word * n >> 32); }

/* -1 to 1, without 1. */
__device__ __forceinline__ float either(u32 word) { return (float)(word >> 8) * 1.1920928955078125e-7f - 1.0f; }

/* cos / zoom and sin / zoom in numbers of 16 binary places, as warp.py's matrix. */
__device__ __forceinline__ void matrix(int angle, int zoom, i64 &cos, i64 &sin)
{
    const int quarter = (angle + (1 << 21)) >> 22;
    const i64 x = (i64)(angle - quarter * (1 << 22)) * 421657428 >> 20, q = x * x >> 30;
    const i64 s = x * ((1 << 30) + ((-178956971 + ((8947849 + (-213044 * q >> 30)) * q >> 30)) * q >> 30)) >> 30;
    const i64 high = 44739243 + ((-1491308 + (26631 * q >> 30)) * q >> 30);
    const i64 c = (1 << 30) + ((-(1 << 29) + (high * q >> 30)) * q >> 30);
    const i64 inverse = ((1ll << 32) + (zoom >> 1)) / zoom;
    const int turned = quarter & 3;
    cos = (turned == 0 ? c : turned == 1 ? -s : turned == 2 ? -c : s) * inverse >> 30;
    sin = (turned == 0 ? s : turned == 1 ? c : turned == 2 ? -s : -c) * inverse >> 30;
}

__device__ __forceinline__ Changes changes(
    const Step *drawn, u32 n, u32 number, int flip, u32 translate, int cutout, int H, int W, int angle, int zoom,
    float light, float contrast, float saturation, float tint)
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
#if FULL
    const Words turned = philox(n, drawn->micro[0], drawn->micro[1], STREAM_WARP, low, high);
    const Words tinted = philox(n, drawn->micro[0], drawn->micro[1], STREAM_COLOR, low, high);
    matrix((int)below(turned.w[0], 2 * angle + 1) - angle, (int)below(turned.w[1], 2 * zoom + 1) - zoom + (1 << 16),
           to.cos, to.sin);
    to.light = __fmul_rn(light, either(tinted.w[0]));
    to.contrast = __fadd_rn(1.0f, __fmul_rn(contrast, either(tinted.w[1])));
    to.saturation = __fadd_rn(1.0f, __fmul_rn(saturation, either(tinted.w[2])));
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const float share = (float)((int)(tinted.w[3] >> 8 * c & 255) * 2 - 255) / 255.0f;
        to.tints[c] = __fadd_rn(1.0f, __fmul_rn(tint, share));
    }
#endif
    return to;
}

#if FULL

/* The row of the stored picture for row u of the picture as it is seen, which may be outside. */
__device__ __forceinline__ int row_of(i64 u, int n, int reflect, int backwards)
{
    int at;
    if (reflect) {
        const i64 period = n > 1 ? 2 * (i64)(n - 1) : 1, r = (u % period + period) % period;
        at = (int)(r < n ? r : period - r);
    } else
        at = (int)(u < 0 ? 0 : u >= n ? n - 1 : u);
    return backwards ? n - 1 - at : at;
}

enum { MOST_CHANNELS = 4 }; /* of augment.py */

/* What output pixel (i, j) of one sample becomes: `out` has its C <= MOST_CHANNELS values. top: the largest value, 0
 * where values are not clipped. */
template <class T>
__device__ __forceinline__ void pixel(
    const T *from, const Changes &to, int i, int j, const float *mean, const float *std, float top, bool turns,
    bool tints, int H, int W, int C, int reflect, int cutout, float *out)
{
    const i64 di = 2 * (i64)(i - to.dy) - (H - 1), dj = 2 * (i64)(j - to.dx) - (W - 1);
    const i64 one = turns ? to.cos : 1 << 16, other = turns ? to.sin : 0;
    const i64 U = one * di + other * dj + ((i64)(H - 1) << 16), V = one * dj - other * di + ((i64)(W - 1) << 16);
    const i64 u = (U + (1 << 16)) >> 17, v = (V + (1 << 16)) >> 17;
    bool blank = (u32)(i - to.top) < (u32)cutout && (u32)(j - to.left) < (u32)cutout;
    blank |= !reflect && (u < 0 || u >= H || v < 0 || v >= W);
    const int fu = (int)(U >> 9) & 255, fv = (int)(V >> 9) & 255;
    const int high = row_of(U >> 17, H, reflect, to.upside_down);
    const int low = row_of((U >> 17) + 1, H, reflect, to.upside_down);
    const int left = row_of(V >> 17, W, reflect, to.mirror), right = row_of((V >> 17) + 1, W, reflect, to.mirror);
    const float w[4] = {(float)((256 - fu) * (256 - fv)), (float)((256 - fu) * fv), (float)(fu * (256 - fv)),
                        (float)(fu * fv)};
    const T *at[4] = {from + ((size_t)high * W + left) * C, from + ((size_t)high * W + right) * C,
                      from + ((size_t)low * W + left) * C, from + ((size_t)low * W + right) * C};
#pragma unroll
    for (int c = 0; c < MOST_CHANNELS; c++) {
        if (c >= C) break;
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < 4; k++) sum = __fadd_rn(sum, __fmul_rn((float)at[k][c], w[k]));
        out[c] = sum * 1.52587890625e-5f;
    }
    if (tints) {
#pragma unroll
        for (int c = 0; c < MOST_CHANNELS; c++)
            if (c < C) out[c] = __fmul_rn(out[c], to.tints[c]);
        const float grey = C == 3 ? __fmul_rn(out[0] + out[1] + out[2], 0.333333343267440796f) : 0.0f;
#pragma unroll
        for (int c = 0; c < MOST_CHANNELS; c++) {
            if (c >= C) break;
            const float middle = mean ? mean[c] : 0.0f;
            float value = out[c];
            if (C == 3) value = __fadd_rn(__fmul_rn(value - grey, to.saturation), grey);
            value = __fadd_rn(__fadd_rn(__fmul_rn(value - middle, to.contrast), middle), to.light);
            if (top > 0.0f) value = value < 0.0f ? 0.0f : value > top ? top : value;
            out[c] = value;
        }
    }
#pragma unroll
    for (int c = 0; c < MOST_CHANNELS; c++) {
        if (c >= C) break;
        if (blank) out[c] = 0.0f;
        else if (mean) out[c] = (out[c] - mean[c]) / std[c];
    }
}

__device__ __forceinline__ float top_of(const u8 *) { return 255.0f; }
__device__ __forceinline__ float top_of(const float *) { return 0.0f; }

template <class T>
__device__ __forceinline__ void gather(
    const T *set, const u32 *labels, const int *order, const Step *step, const float *mean, const float *std, real *x,
    u32 *target, int rows, int batch, int count, int words, const Step *drawn, const int *numbers, WISHES)
{
    const u32 line = blockIdx.y * blockDim.x + threadIdx.x, pixels = H * W, stride = gridDim.y * blockDim.x;
    const int start = step ? step->cursor * batch : 0;
    const bool turns = angle > 0 || zoom > 0, tints = light + contrast + saturation + tint > 0.0f;
    for (int n = blockIdx.x; n < rows; n += gridDim.x) {
        const int s = place_of(order, start, n, count);
        const Changes to = changes(drawn, n, numbers ? numbers[n] : s, flip, translate, cutout, H, W, angle, zoom,
                                   light, contrast, saturation, tint);
#if MIX
        const int m = rows - 1 - n, other = place_of(order, start, m, count);
        const Changes beside = changes(drawn, m, numbers ? numbers[m] : other, flip, translate, cutout, H, W, angle,
                                       zoom, light, contrast, saturation, tint);
        const float own = drawn->blend;
#endif
        for (u32 p = line; p < pixels; p += stride) {
            const int i = p / W, j = p - i * W;
            float out[MOST_CHANNELS];
#if MIX
            const bool inside =
                (u32)(i - drawn->box[0]) < (u32)drawn->box[2] && (u32)(j - drawn->box[1]) < (u32)drawn->box[3];
            float second[MOST_CHANNELS];
            if (!inside)
                pixel(set + (size_t)s * pixels * C, to, i, j, mean, std, top_of(set), turns, tints, H, W, C, reflect,
                      cutout, out);
            if (inside || own < 1.0f)
                pixel(set + (size_t)other * pixels * C, beside, i, j, mean, std, top_of(set), turns, tints, H, W, C,
                      reflect, cutout, second);
#pragma unroll
            for (int c = 0; c < MOST_CHANNELS; c++) {
                if (c >= C) break;
                if (inside) out[c] = second[c];
                else if (own < 1.0f) out[c] = __fadd_rn(__fmul_rn(out[c], own), __fmul_rn(second[c], 1.0f - own));
            }
#else
            pixel(set + (size_t)s * pixels * C, to, i, j, mean, std, top_of(set), turns, tints, H, W, C, reflect,
                  cutout, out);
#endif
#pragma unroll
            for (int c = 0; c < MOST_CHANNELS; c++) {
                if (c >= C) break;
                put(x + ((size_t)n * pixels + p) * C + c, out[c]);
            }
        }
    }
    const u32 block = blockIdx.y * gridDim.x + blockIdx.x;
    copy_answers(labels, order, start, target, rows, count, words, block * blockDim.x + threadIdx.x,
                 gridDim.x * gridDim.y * blockDim.x);
}

#else

/* u or, where it is outside 0..n-1 by less than n, its mirror image in the first or last pixel. */
__device__ __forceinline__ int reflected(int u, int n) { return u < 0 ? -u : u >= n ? 2 * n - 2 - u : u; }

template <class T>
__device__ __forceinline__ void gather(
    const T *set, const u32 *labels, const int *order, const Step *step, const float *mean, const float *std, real *x,
    u32 *target, int rows, int batch, int count, int words, const Step *drawn, const int *numbers, WISHES)
{
    const u32 line = blockIdx.y * blockDim.x + threadIdx.x, pixels = H * W, stride = gridDim.y * blockDim.x;
    const int start = step ? step->cursor * batch : 0;
    for (int n = blockIdx.x; n < rows; n += gridDim.x) {
        const int s = place_of(order, start, n, count);
        const Changes to = changes(drawn, n, numbers ? numbers[n] : s, flip, translate, cutout, H, W, angle, zoom,
                                   light, contrast, saturation, tint);
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

#endif

extern "C" __global__ void load_augmented_u8_f32(
    const u8 *__restrict__ set, const u32 *__restrict__ labels, const int *__restrict__ order,
    const Step *__restrict__ step, const float *__restrict__ mean, const float *__restrict__ std, real *__restrict__ x,
    u32 *__restrict__ target, int rows, int batch, int count, int words, const Step *__restrict__ drawn,
    const int *__restrict__ numbers, WISHES)
{
    wait_for_last_launch();
    gather(set, labels, order, step, mean, std, x, target, rows, batch, count, words, drawn, numbers, WISHED);
}

extern "C" __global__ void load_augmented_f32_f32(
    const float *__restrict__ set, const u32 *__restrict__ labels, const int *__restrict__ order,
    const Step *__restrict__ step, const float *__restrict__ mean, const float *__restrict__ std, real *__restrict__ x,
    u32 *__restrict__ target, int rows, int batch, int count, int words, const Step *__restrict__ drawn,
    const int *__restrict__ numbers, WISHES)
{
    wait_for_last_launch();
    gather(set, labels, order, step, mean, std, x, target, rows, batch, count, words, drawn, numbers, WISHED);
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
    wait_for_last_launch();
    gather(set, labels, order, step, mean, std, x, target, rows, batch, count, D, C, words);
}

extern "C" __global__ void load_f32_f32(
    const float *__restrict__ set, const u32 *__restrict__ labels, const int *__restrict__ order,
    const Step *__restrict__ step, const float *__restrict__ mean, const float *__restrict__ std, real *__restrict__ x,
    u32 *__restrict__ target, int rows, int batch, int count, int D, int C, int words)
{
    wait_for_last_launch();
    gather(set, labels, order, step, mean, std, x, target, rows, batch, count, D, C, words);
}

#endif
