/* The kernels over bytes for x86-64 with AVX2: products of 16-bit numbers, whose sums by two are exact. */
#include "fast_int8_set.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2,tune=haswell")
#endif

#define OUTS 4 /* each in two parts */
#define LIFTS 0
#define WIDENS 1
typedef int16_t byte;
#define VECTORS 2
#define TILE_PANELS 1
#define TILES8(T) T(1, 2) T(2, 2) T(4, 2) T(6, 2)
typedef __m256i va, vx;
#define ZERO _mm256_setzero_si256()
#define SPLAT4(p) _mm256_set1_epi64x(four_at(p))
#define DOT(s, w, x) _mm256_add_epi32(s, _mm256_madd_epi16(x, eight_at(w)))
#define FOLD(to, s, v) \
    do { \
        for (int f = 0; f < (v); f += 2) \
            _mm256_storeu_si256((__m256i *)(void *)((to) + f * 4), \
                                _mm256_permute4x64_epi64(_mm256_hadd_epi32((s)[f], (s)[f + 1]), 0xD8)); \
    } while (0)

INLINE int64_t four_at(const int16_t *p)
{
    int64_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

#include "fast_int8_ymm.h"

/* Bytes of two taps side by side, as 16-bit numbers, for each of 16 channels. */
typedef struct dw_pair {
    __m256i part[2];
} dw_pair;

INLINE __m128i pixel(const void *p)
{
    return _mm_loadu_si128(p);
}

INLINE dw_pair dw_side_by_side(__m128i a, __m128i b)
{
    return (dw_pair){{_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b)), _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(a, b))}};
}

typedef struct dw_sums {
    __m256i part[2];
} dw_sums;

#define DW_ZERO ((dw_sums){{ZERO, ZERO}})

INLINE dw_sums dw_dot(dw_sums s, dw_pair x, dw_pair w)
{
    s.part[0] = _mm256_add_epi32(s.part[0], _mm256_madd_epi16(x.part[0], w.part[0]));
    s.part[1] = _mm256_add_epi32(s.part[1], _mm256_madd_epi16(x.part[1], w.part[1]));
    return s;
}

INLINE void dw_store(int32_t *to, dw_sums s)
{
    _mm256_storeu_si256((__m256i *)(void *)to, s.part[0]);
    _mm256_storeu_si256((__m256i *)(void *)(to + 8), s.part[1]);
}

/* y[j] = clamp(z + ((s[j] + c) >> shift), lo, hi) for 16 sums */
INLINE void shift16(dw_sums s, int32_t c, uint32_t shift, ln_quantum q, int8_t *y)
{
    const __m256i rest = _mm256_set1_epi32(c), z = _mm256_set1_epi32(q.z);
    const __m128i by = _mm_cvtsi32_si128((int)shift);
    store_held(_mm256_add_epi32(_mm256_sra_epi32(_mm256_add_epi32(s.part[0], rest), by), z),
               _mm256_add_epi32(_mm256_sra_epi32(_mm256_add_epi32(s.part[1], rest), by), z), q, y);
}

INLINE dw_pair dw_twice(int32_t two) /* the same two for every channel */
{
    return (dw_pair){{_mm256_set1_epi32(two), _mm256_set1_epi32(two)}};
}

/* ln_rounded of x[i] inverse, 16 times */
INLINE dw_sums dw_rounded(const float *x, float inverse)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), half = _mm256_set1_ps(0.5f), most = _mm256_set1_ps(512.0f);
    dw_sums s;
    for (int i = 0; i < 2; i++) {
        const __m256 product = _mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(inverse));
        const __m256 t = _mm256_min_ps(most, _mm256_max_ps(_mm256_set1_ps(-512.0f), product));
        const __m256 moved = _mm256_add_ps(t, _mm256_or_ps(_mm256_and_ps(t, sign), half));
        s.part[i] = _mm256_cvttps_epi32(_mm256_and_ps(moved, _mm256_cmp_ps(t, t, _CMP_ORD_Q)));
    }
    return s;
}

INLINE dw_sums dw_times128(dw_sums s)
{
    return (dw_sums){{_mm256_slli_epi32(s.part[0], 7), _mm256_slli_epi32(s.part[1], 7)}};
}

INLINE int32_t two_at(const int16_t *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

#define PRODUCTS 24
#define WINO_PRODUCTS 24
#define WIDE 16
#define WIDE_LOAD(p) _mm256_cvtepi8_epi16(pixel(p))
#define SUMS 8
#define WINO_MOST 6
#define WINO_TILES(T) T(2) T(4) T(6)
#define PAIR(p) _mm256_set1_epi32(two_at(p))
#define ADD_PAIRS(s, w, x) _mm256_add_epi32(s, _mm256_madd_epi16(x, eight_at(w)))

#define DW_PIXEL __m128i
#define DW_NONE _mm_setzero_si128()
#define SHARED /* with AVX-VNNI */
#define INT8 ln_int8_avx2
#define INT8_NAME "avx2"
#include "fast_int8_kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
