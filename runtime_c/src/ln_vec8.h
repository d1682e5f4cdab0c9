/* Eight floats: the vector of the portable kernels.
 *
 * Plain C has no vectors, and compilers find them in loops only sometimes: written with arrays, the register tile of
 * ln_tile.h is four times slower with gcc 12 at -O3 than at -O2. So gcc and clang are told, through their vector
 * type, wherever the processor has 16-byte vectors; elsewhere it is a struct, which they take apart into variables.
 * Both round each product and each sum alike, so results agree bit for bit. LN_NO_VECTORS asks for the struct: tests
 * do. */
#ifndef LN_VEC8_H
#define LN_VEC8_H

#include "ln_math.h"

#if defined(__GNUC__) && !defined(LN_NO_VECTORS) && !defined(LN_BIG_ENDIAN) \
    && (defined(__SSE2__) || defined(__ARM_NEON) || defined(__wasm_simd128__) || defined(__ALTIVEC__))

typedef float ln_vec4 __attribute__((vector_size(16)));
typedef int32_t ln_bits4 __attribute__((vector_size(16)));
typedef float ln_vec4_in_memory __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t ln_bits4_in_memory __attribute__((vector_size(16), aligned(2), may_alias));
#define LN_BITS4

static inline ln_vec4 ln_set4(float x0, float x1, float x2, float x3)
{
    return (ln_vec4){x0, x1, x2, x3};
}

static inline ln_vec4 ln_load4(const float *x)
{
    return *(const ln_vec4_in_memory *)x;
}

static inline void ln_store4(float *y, ln_vec4 v)
{
    *(ln_vec4_in_memory *)y = v;
}

static inline ln_vec4 ln_mac4(ln_vec4 sum, float x, ln_vec4 w) /* sum + x * w */
{
    return sum + x * w;
}

static inline ln_vec4 ln_mul_add4(ln_vec4 sum, ln_vec4 x, ln_vec4 w) /* sum + x * w, each by each */
{
    return sum + x * w;
}

/* ln_f16 four times, of halves in the upper 16 bits. A comparison gives all ones where it holds. */
static inline ln_vec4 ln_upper_f16(ln_bits4 h)
{
    const ln_bits4 magnitude = (h & 0x7FFF0000) >> 3, denormal = magnitude < 0x00800000;
    const ln_bits4 y = magnitude + (112 << 23) + (denormal & 0x00800000);
    const ln_bits4 offset = denormal & (113 << 23); /* 2^-14 or 0 */
    return (ln_vec4)((ln_bits4)((ln_vec4)y - (ln_vec4)offset) | (h & (-0x7FFFFFFF - 1)));
}

static inline ln_vec4 ln_load4_f16(const uint16_t *h)
{
    const ln_bits4 low = {h[0], h[1], h[2], h[3]};
    return ln_upper_f16(low << 16);
}

static inline ln_vec4 ln_load4_stored(const float *w) /* weights */
{
    return ln_load4(w);
}

#else

typedef struct ln_vec4 {
    float v0, v1, v2, v3;
} ln_vec4;

static inline ln_vec4 ln_set4(float x0, float x1, float x2, float x3)
{
    const ln_vec4 v = {x0, x1, x2, x3};
    return v;
}

static inline ln_vec4 ln_load4(const float *x)
{
    return ln_set4(x[0], x[1], x[2], x[3]);
}

static inline void ln_store4(float *y, ln_vec4 v)
{
    y[0] = v.v0;
    y[1] = v.v1;
    y[2] = v.v2;
    y[3] = v.v3;
}

static inline ln_vec4 ln_mac4(ln_vec4 sum, float x, ln_vec4 w) /* sum + x * w */
{
    return ln_set4(sum.v0 + x * w.v0, sum.v1 + x * w.v1, sum.v2 + x * w.v2, sum.v3 + x * w.v3);
}

static inline ln_vec4 ln_mul_add4(ln_vec4 sum, ln_vec4 x, ln_vec4 w) /* sum + x * w, each by each */
{
    return ln_set4(sum.v0 + x.v0 * w.v0, sum.v1 + x.v1 * w.v1, sum.v2 + x.v2 * w.v2, sum.v3 + x.v3 * w.v3);
}

static inline ln_vec4 ln_load4_f16(const uint16_t *h)
{
    return ln_set4(ln_stored_f16(h), ln_stored_f16(h + 1), ln_stored_f16(h + 2), ln_stored_f16(h + 3));
}

static inline ln_vec4 ln_load4_stored(const float *w) /* weights */
{
    return ln_set4(ln_stored_f32(w), ln_stored_f32(w + 1), ln_stored_f32(w + 2), ln_stored_f32(w + 3));
}

#endif

typedef struct ln_vec8 {
    ln_vec4 a, b;
} ln_vec8;

static inline ln_vec8 ln_mac8(ln_vec8 sum, float x, ln_vec8 w) /* sum + x * w */
{
    sum.a = ln_mac4(sum.a, x, w.a);
    sum.b = ln_mac4(sum.b, x, w.b);
    return sum;
}

static inline ln_vec8 ln_mul_add8(ln_vec8 sum, ln_vec8 x, ln_vec8 w) /* sum + x * w, each by each */
{
    sum.a = ln_mul_add4(sum.a, x.a, w.a);
    sum.b = ln_mul_add4(sum.b, x.b, w.b);
    return sum;
}

static inline ln_vec8 ln_load8(const float *x)
{
    const ln_vec8 v = {ln_load4(x), ln_load4(x + 4)};
    return v;
}

static inline ln_vec8 ln_load8_stored(const float *w)
{
    const ln_vec8 v = {ln_load4_stored(w), ln_load4_stored(w + 4)};
    return v;
}

static inline void ln_store8(float *y, ln_vec8 v)
{
    ln_store4(y, v.a);
    ln_store4(y + 4, v.b);
}

/* Halves are decoded in pairs, the even ones into a and the odd ones into b: masks and shifts do it, where their own
 * order would take a shuffle. What is added to them has to stand in the same order. */
static inline ln_vec8 ln_load8_f16(const uint16_t *h)
{
#ifdef LN_BITS4
    const ln_bits4 pairs = *(const ln_bits4_in_memory *)h;
    const ln_vec8 v = {ln_upper_f16(pairs << 16), ln_upper_f16(pairs)};
#else
    const ln_vec8 v = {
        ln_set4(ln_stored_f16(h), ln_stored_f16(h + 2), ln_stored_f16(h + 4), ln_stored_f16(h + 6)),
        ln_set4(ln_stored_f16(h + 1), ln_stored_f16(h + 3), ln_stored_f16(h + 5), ln_stored_f16(h + 7))};
#endif
    return v;
}

static inline ln_vec8 ln_load8_paired(const float *x)
{
    const ln_vec8 v = {ln_set4(x[0], x[2], x[4], x[6]), ln_set4(x[1], x[3], x[5], x[7])};
    return v;
}

static inline void ln_store8_paired(float *y, ln_vec8 v)
{
    float t[8];
    ln_store8(t, v);
    for (int j = 0; j < 4; j++) {
        y[2 * j] = t[j];
        y[2 * j + 1] = t[4 + j];
    }
}

#endif
