/* The kernels over bytes for x86-64 with AVX-512 and its VNNI: 64 products and their sums an instruction. */
#include "fast_int8_set.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,tune=haswell")
#endif

#define OUTS 16
#define LIFTS 1
#define WIDENS 0
typedef int8_t byte;
#define VECTORS 4
#define TILE_PANELS 4
#define TILES8(T) \
    T(1, 1) T(4, 1) T(12, 1) T(1, 2) T(4, 2) T(8, 2) T(1, 4) T(4, 4) T(6, 4)
typedef __m512i va, vx;
#define ZERO _mm512_setzero_si512()
#define SPLAT4(p) _mm512_set1_epi32(word_at(p))
#define DOT(s, w, x) _mm512_dpbusd_epi32(s, x, _mm512_loadu_si512(w))
#define FOLD(to, s, v)                                                  \
    do {                                                                \
        UNROLL                                                          \
        for (int f = 0; f < (v); f++) _mm512_storeu_si512((to) + f * 16, (s)[f]); \
    } while (0)

INLINE int32_t word_at(const int8_t *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

typedef struct pv { /* biases and multipliers of 16 channels */
    __m512i bias, even, odd;
} pv;

INLINE pv put_load(const uint8_t *bias, const uint8_t *scale)
{
    const __m512i m = _mm512_loadu_si512(scale);
    return (pv){_mm512_loadu_si512(bias), m, _mm512_srli_epi64(m, 32)};
}

INLINE void store_held(__m512i v, ln_quantum q, int8_t *y)
{
    const __m128i b = _mm_max_epi8(_mm512_cvtsepi32_epi8(v), _mm_set1_epi8((int8_t)q.lo));
    _mm_storeu_si128((__m128i *)(void *)y, _mm_min_epi8(b, _mm_set1_epi8((int8_t)q.hi)));
}

/* y[j] = clamp(z + requant(s[j] + bias[j], scale[j]), lo, hi) for 16 channels. With the sum doubled the result is the upper
 * half of a product of 64 bits. */
INLINE void put_vector(__m512i s, const pv *p, ln_quantum q, int8_t *y)
{
    const __m512i sum = _mm512_add_epi32(s, p->bias), a = _mm512_add_epi32(sum, sum);
    const __m512i half = _mm512_set1_epi64(((int64_t)2 * q.z + 1) * ((int64_t)1 << 31));
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(a, p->even), half);
    const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(a, 32), p->odd), half);
    const __m512i r = _mm512_mask_shuffle_epi32(odd, 0x5555, even, 0xF5);
    store_held(r, q, y);
}

INLINE void put16(const int32_t *s, const pv *p, ln_quantum q, int8_t *y)
{
    put_vector(_mm512_loadu_si512(s), p, q, y);
}

INLINE __m512i most_of(__m512i a, __m512i b)
{
    return _mm512_max_epi32(a, b);
}

/* Bytes of two taps side by side, as 16-bit numbers, for each of 16 channels. */
typedef __m512i dw_pair, dw_sums;
#define DW_ZERO ZERO

INLINE __m128i pixel(const void *p)
{
    return _mm_loadu_si128(p);
}

INLINE dw_pair dw_side_by_side(__m128i a, __m128i b)
{
    return _mm512_cvtepi8_epi16(_mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b)));
}

INLINE dw_sums dw_dot(dw_sums s, dw_pair x, dw_pair w)
{
    return _mm512_dpwssd_epi32(s, x, w);
}

INLINE void dw_store(int32_t *to, dw_sums s)
{
    _mm512_storeu_si512(to, s);
}

/* y[j] = clamp(z + ((s[j] + c) >> shift), lo, hi) for 16 sums */
INLINE void shift16(dw_sums s, int32_t c, uint32_t shift, ln_quantum q, int8_t *y)
{
    const __m512i v = _mm512_sra_epi32(_mm512_add_epi32(s, _mm512_set1_epi32(c)), _mm_cvtsi32_si128((int)shift));
    store_held(_mm512_add_epi32(v, _mm512_set1_epi32(q.z)), q, y);
}

INLINE dw_pair dw_twice(int32_t two) /* the same two for every channel */
{
    return _mm512_set1_epi32(two);
}

INLINE dw_sums dw_times128(dw_sums s)
{
    return _mm512_slli_epi32(s, 7);
}

#define PRODUCTS 64
#define WINO_PRODUCTS 32
#define WIDE 16
#define WIDE_LOAD(p) _mm256_cvtepi8_epi16(pixel(p))
#define SUMS 16
#define WINO_MOST 16
#define WINO_TILES(T) T(4) T(8) T(12) T(16)
#define PAIR(p) _mm512_set1_epi32(word_at((const int8_t *)(p)))
#define ADD_PAIRS(s, w, x) _mm512_dpwssd_epi32(s, x, _mm512_loadu_si512(w))

#define DW_PIXEL __m128i
#define DW_NONE _mm_setzero_si128()
#define INT8 ln_int8_vnni
#define INT8_NAME "vnni"
#include "fast_int8_kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
