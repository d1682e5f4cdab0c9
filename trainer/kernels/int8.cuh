/* int8: what the kernels of training in whole numbers share (trainer/int8; runtime_c/FORMAT.md has the formulas).
 *   Scale       how a tensor's int8 stand for real numbers: scale (q - zero); they last, at the front of the arena
 *   Numbers     of one layer with O output channels, int32: bias B (O), multiplier M (O), lo, hi, then y's Scale
 * Scales and multipliers are found in double, as NumPy finds them: equal weights give equal integers.
 */
#ifndef LITENET_INT8_CUH
#define LITENET_INT8_CUH
#include "common.cuh"

typedef long long i64;
typedef signed char i8;

enum { LO = -128, HI = 127, MOST_WEIGHT = 127 };

struct Scale {
    float scale;
    int zero;
};

__device__ __forceinline__ int clamp(i64 q, int lo, int hi) { return (int)(q < lo ? lo : q > hi ? hi : q); }

/* float32 to int8: t = v (1/s), held within +-512; zero + trunc(t +- 0.5); NaN gives zero */
__device__ __forceinline__ int whole(float v, float inverse, int zero)
{
    float t = v * inverse;
    t = t == t ? fminf(fmaxf(t, -512.0f), 512.0f) : 0.0f;
    return clamp(zero + (int)(t + (t >= 0.0f ? 0.5f : -0.5f)), LO, HI);
}

__device__ __forceinline__ float real_of(int q, Scale s) { return s.scale * (float)(q - s.zero); }

/* (acc M + 2^30) >> 31: shifts are for imported models, none of which is trained in int8 */
__device__ __forceinline__ i64 requant(int acc, int M) { return ((i64)acc * M + (1 << 30)) >> 31; }

/* M / 2^31 nearest to m, 0 <= m <= 1 */
__device__ __forceinline__ int multiplier(double m)
{
    return (int)fmin(floor(m * 2147483648.0 + 0.5), 2147483647.0);
}

/* At least `least`, rounded up to a float. */
__device__ __forceinline__ float wider(float scale, double least)
{
    float up = (float)least;
    if ((double)up < least) up = __int_as_float(__float_as_int(up) + 1);
    return scale >= up ? scale : up;
}

/* The q whose real value is nearest; halves up. */
__device__ __forceinline__ int nearest(double value, Scale s)
{
    return clamp((i64)floor(fmin(fmax(value / (double)s.scale, -1e6), 1e6) + 0.5) + s.zero, LO, HI);
}

/* What an activation (none, relu, relu6) leaves of int8. */
__device__ __forceinline__ int lowest(int act, Scale s) { return act == ACT_NONE ? LO : s.zero > LO ? s.zero : LO; }
__device__ __forceinline__ int highest(int act, Scale s) { return act == ACT_RELU6 ? nearest(6.0, s) : HI; }

/* c + the products of four int8 with four others */
__device__ __forceinline__ int dot4(int a, int b, int c)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
    return __dp4a(a, b, c);
#else
#pragma unroll
    for (int k = 0; k < 32; k += 8) c += (int)(i8)(a >> k) * (int)(i8)(b >> k);
    return c;
#endif
}

__device__ __forceinline__ int byte_of(int q, int place) { return (q & 255) << 8 * place; }

#endif
