/* common: what the kernels share. Everything is a function of its arguments, and every sum has a fixed order.
 *   activations     the formulas and numbers (ids) of trainer/ops/activations.py
 *   real            how activations and their gradients are stored: macro REAL, float or Half; arithmetic is in float
 *   Pack<V>         V neighbouring values, loaded and stored at once (V = 4 needs an address that is a multiple of 16,
 *                   of Half 8)
 *   reductions      over a warp or a one-dimensional block of whole warps
 *   Philox4x32-10   the numbers of trainer/rng.py, bit for bit
 *   Step            the numbers that change from one replay of a step to the next
 */
#ifndef LITENET_COMMON_CUH
#define LITENET_COMMON_CUH

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

/* ---- launches. From compute capability 9.0 on one may be set up while the one before it still runs (backends/follow.py);
 * then nothing of memory may be read or written before this: the first statement of every kernel. ---- */

__device__ __forceinline__ void wait_for_last_launch()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- registers. What follows from x cheaply the compiler works out far ahead, before a loop perhaps, and keeps; from
 * anew(x), which is x, it works out nothing before this place. ---- */

__device__ __forceinline__ int anew(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}

/* ---- activations. With a constant id the switch is gone after compilation. ---- */

enum {
    ACT_NONE = 0, ACT_RELU = 1, ACT_RELU6 = 2, ACT_LEAKY_RELU = 3, ACT_GELU = 4, ACT_SIGMOID = 5, ACT_TANH = 6,
    ACT_SILU = 7, ACT_HARD_SWISH = 8, ACT_GELU_TANH = 9
};

/* Whether the derivative follows from the output alone. */
#define ACT_FROM_OUTPUT(id) \
    ((id) <= ACT_LEAKY_RELU || (id) == ACT_SIGMOID || (id) == ACT_TANH)

__device__ __forceinline__ float sigmoid(float h)
{
    const float e = expf(-fabsf(h)); /* never raised to a positive power */
    return (h >= 0.0f ? 1.0f : e) / (1.0f + e);
}

__device__ __forceinline__ float gelu_tanh_inner(float h)
{
    return tanhf(0.7978845608f * (h + 0.044715f * h * h * h));
}

/* activation(h). The comparisons are written so that a NaN stays a NaN. */
__device__ __forceinline__ float act_apply(int id, float h, float alpha)
{
    switch (id) {
    case ACT_RELU: return h < 0.0f ? 0.0f : h;
    case ACT_RELU6: return h < 0.0f ? 0.0f : h > 6.0f ? 6.0f : h;
    case ACT_LEAKY_RELU: return h > 0.0f ? h : alpha * h;
    case ACT_GELU: return 0.5f * h * (1.0f + erff(0.70710678f * h));
    case ACT_SIGMOID: return sigmoid(h);
    case ACT_TANH: return tanhf(h);
    case ACT_SILU: return h * sigmoid(h);
    case ACT_HARD_SWISH: return h * (h < -3.0f ? 0.0f : h > 3.0f ? 6.0f : h + 3.0f) / 6.0f;
    case ACT_GELU_TANH: return 0.5f * h * (1.0f + gelu_tanh_inner(h));
    default: return h;
    }
}

/* dy * activation'(h), told from y = activation(h); only where ACT_FROM_OUTPUT. */
__device__ __forceinline__ float act_mask(int id, float dy, float y, float alpha)
{
    switch (id) {
    case ACT_RELU: return y > 0.0f ? dy : 0.0f;
    case ACT_RELU6: return y > 0.0f && y < 6.0f ? dy : 0.0f;
    case ACT_LEAKY_RELU: return y > 0.0f ? dy : alpha * dy;
    case ACT_SIGMOID: return dy * y * (1.0f - y);
    case ACT_TANH: return dy * (1.0f - y * y);
    default: return dy;
    }
}

/* dy * activation'(h), for the activations whose output does not tell the derivative. */
__device__ __forceinline__ float act_input_grad(int id, float dy, float h)
{
    switch (id) {
    case ACT_GELU: {
        const float cdf = 0.5f * (1.0f + erff(0.70710678f * h));
        return dy * (cdf + h * 0.39894228f * expf(-0.5f * h * h));
    }
    case ACT_GELU_TANH: {
        const float t = gelu_tanh_inner(h);
        const float slope = 0.7978845608f * (1.0f + 0.134145f * h * h);
        return dy * (0.5f * (1.0f + t) + 0.5f * h * (1.0f - t * t) * slope);
    }
    case ACT_SILU: {
        const float s = sigmoid(h);
        return dy * (s + h * s * (1.0f - s));
    }
    case ACT_HARD_SWISH: return dy * (h <= -3.0f ? 0.0f : h >= 3.0f ? 1.0f : h / 3.0f + 0.5f);
    default: return dy;
    }
}

/* ---- storage. What REAL says of activations; weights, their gradients, statistics and sums are float always. ---- */

struct Half { u16 bits; }; /* IEEE half precision: 65504 is the largest, above it comes infinity */

#ifndef HALF_TO_FLOAT /* the tests' shim has its own */
__device__ __forceinline__ float half_to_float(u16 bits)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(bits));
    return f;
}
__device__ __forceinline__ u16 float_to_half(float f)
{
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
    return bits;
}
#define HALF_TO_FLOAT half_to_float
#define FLOAT_TO_HALF float_to_half
#endif

#ifndef REAL
#define REAL float
#endif
typedef REAL real;

__device__ __forceinline__ float get(const float *p) { return *p; }
__device__ __forceinline__ float get(const Half *p) { return HALF_TO_FLOAT(p->bits); }
__device__ __forceinline__ void put(float *p, float v) { *p = v; }
__device__ __forceinline__ void put(Half *p, float v) { p->bits = FLOAT_TO_HALF(v); }

/* ---- V values at once ---- */

template <int V> struct Pack { float v[V]; };

template <int V> __device__ __forceinline__ Pack<V> fill(float value)
{
    Pack<V> p;
#pragma unroll
    for (int k = 0; k < V; k++) p.v[k] = value;
    return p;
}

#ifndef ALIGNED_TO
#define ALIGNED_TO(p, bytes) /* a card stops at a wrong address by itself; the tests' shim defines a check */
#endif

template <int V> __device__ __forceinline__ Pack<V> load(const float *p)
{
    Pack<V> out;
    ALIGNED_TO(p, V == 4 ? 16 : V == 2 ? 8 : 4);
    if (V == 4) {
        const float4 q = *reinterpret_cast<const float4 *>(p);
        out.v[0] = q.x;
        out.v[1 % V] = q.y;
        out.v[2 % V] = q.z;
        out.v[3 % V] = q.w;
    } else if (V == 2) {
        const float2 q = *reinterpret_cast<const float2 *>(p);
        out.v[0] = q.x;
        out.v[1 % V] = q.y;
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) out.v[k] = p[k];
    }
    return out;
}

template <int V> __device__ __forceinline__ void store(float *p, const Pack<V> &a)
{
    ALIGNED_TO(p, V == 4 ? 16 : V == 2 ? 8 : 4);
    if (V == 4)
        *reinterpret_cast<float4 *>(p) = make_float4(a.v[0], a.v[1 % V], a.v[2 % V], a.v[3 % V]);
    else if (V == 2)
        *reinterpret_cast<float2 *>(p) = make_float2(a.v[0], a.v[1 % V]);
    else {
#pragma unroll
        for (int k = 0; k < V; k++) p[k] = a.v[k];
    }
}

template <int V> __device__ __forceinline__ Pack<V> load(const Half *p)
{
    Pack<V> out;
    ALIGNED_TO(p, V == 4 ? 8 : V == 2 ? 4 : 2);
    if (V == 4) {
        const uint2 q = *reinterpret_cast<const uint2 *>(p);
        out.v[0] = HALF_TO_FLOAT((u16)q.x);
        out.v[1 % V] = HALF_TO_FLOAT((u16)(q.x >> 16));
        out.v[2 % V] = HALF_TO_FLOAT((u16)q.y);
        out.v[3 % V] = HALF_TO_FLOAT((u16)(q.y >> 16));
    } else if (V == 2) {
        const u32 q = *reinterpret_cast<const u32 *>(p);
        out.v[0] = HALF_TO_FLOAT((u16)q);
        out.v[1 % V] = HALF_TO_FLOAT((u16)(q >> 16));
    } else {
#pragma unroll
        for (int k = 0; k < V; k++) out.v[k] = get(p + k);
    }
    return out;
}

template <int V> __device__ __forceinline__ void store(Half *p, const Pack<V> &a)
{
    ALIGNED_TO(p, V == 4 ? 8 : V == 2 ? 4 : 2);
    if (V == 4)
        *reinterpret_cast<uint2 *>(p) = make_uint2(FLOAT_TO_HALF(a.v[0]) | (u32)FLOAT_TO_HALF(a.v[1 % V]) << 16,
                                                   FLOAT_TO_HALF(a.v[2 % V]) | (u32)FLOAT_TO_HALF(a.v[3 % V]) << 16);
    else if (V == 2)
        *reinterpret_cast<u32 *>(p) = FLOAT_TO_HALF(a.v[0]) | (u32)FLOAT_TO_HALF(a.v[1 % V]) << 16;
    else {
#pragma unroll
        for (int k = 0; k < V; k++) put(p + k, a.v[k]);
    }
}

/* ---- reductions. All threads of the warp or block take part and all get the result. ---- */

#define FULL_WARP 0xffffffffu

template <class T> __device__ __forceinline__ T warp_sum(T v)
{
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v += __shfl_xor_sync(FULL_WARP, v, o);
    return v;
}

__device__ __forceinline__ float warp_max(float v)
{
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) v = fmaxf(v, __shfl_xor_sync(FULL_WARP, v, o));
    return v;
}

/* box: 32 T of shared memory; may be the same at every call. blockDim.x: a multiple of 32. */
template <class T> __device__ __forceinline__ T block_sum(T v, T *box)
{
    v = warp_sum(v);
    __syncthreads(); /* an earlier call may still read box */
    if ((threadIdx.x & 31) == 0) box[threadIdx.x >> 5] = v;
    __syncthreads();
    const u32 lane = threadIdx.x & 31;
    return warp_sum(lane < (blockDim.x >> 5) ? box[lane] : (T)0);
}

__device__ __forceinline__ float block_max(float v, float *box)
{
    v = warp_max(v);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) box[threadIdx.x >> 5] = v;
    __syncthreads();
    const u32 lane = threadIdx.x & 31;
    return warp_max(box[lane < (blockDim.x >> 5) ? lane : 0]);
}

/* Whether this is the last of the `count` blocks (one-dimensional) that come here with this counter; all threads of
 * each take part. The last one sees what the others wrote before. The counter is 0 before, and 0 after the last.
 * One thread's fences serve its block, as the barriers order the others around them; before compute capability 7.0
 * that is not promised. */
__device__ __forceinline__ bool last_block(int *counter, int count)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
    __threadfence();
#endif
    __syncthreads();
    int last = 0;
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(counter, 1) == count - 1;
        if (last) {
            *counter = 0;
            __threadfence();
        }
    }
    return __syncthreads_or(last) != 0;
}

/* ---- random numbers ---- */

struct Words { u32 w[4]; };

/* Philox4x32-10 of counter (c0, c1, c2, c3) and key (k0, k1). */
__device__ __forceinline__ Words philox(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1)
{
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c1 = (u32)p1;
        c3 = (u32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    Words out = {{c0, c1, c2, c3}};
    return out;
}

/* [0, 1) in multiples of 2^-24, exact. */
__device__ __forceinline__ float uniform(u32 word) { return (float)(word >> 8) * 5.9604644775390625e-8f; }

enum { STREAM_SHUFFLE = 1, STREAM_SPLIT = 2, STREAM_INIT = 3, STREAM_DROPOUT = 4, STREAM_AUGMENT = 5, STREAM_FLIP = 6,
       STREAM_WARP = 16, STREAM_COLOR = 17 };

/* ---- what changes from step to step: 64 bytes, written by the host alone ---- */

struct Step {
    u32 seed[2];      /* low, high */
    u32 micro[2];     /* forward passes so far, low and high */
    int cursor;       /* index of the batch in the epoch */
    int t;            /* number of the update under way, from 1, those skipped included */
    float lr;         /* its learning rate */
    float grad_scale; /* 1 / micro-batches of this update */
    float share;      /* of a sample's own label, where batches are mixed; else 1 */
    float blend;      /* of its own pixels outside the box; else 1 */
    int box[4];       /* top, left, height, width of what is the other sample's */
    u32 pad;
    u32 epoch;        /* from 0: augmentation's alternate flip depends on it */
};

/* Loss scaling, where gradients are stored in half precision: the loss's gradient is multiplied by `scale`, so that
 * small gradients do not vanish, and the update divides by it. An update whose gradients overflowed is skipped.
 * 16 bytes that last, and belong to a resume; gradient_norm_f32 in update.cu alone changes them. */
struct Scaling {
    float scale;   /* a power of two */
    int good;      /* updates since the scale last changed */
    int skipped;   /* updates skipped so far */
    float inverse; /* what the update under way multiplies its gradients by; 0: it is skipped */
};

/* What is kept of each step until the host reads it: a row of four for the loss (losses.cu), and the partial sums of
 * squares of its update (update.cu), both at the step's cursor. */
__device__ __forceinline__ size_t history_row(const Step *step, int rows)
{
    return (size_t)min(max(step->cursor, 0), rows - 1);
}

__device__ __forceinline__ u64 step_micro(const Step *step) { return (u64)step->micro[1] << 32 | step->micro[0]; }

#endif
