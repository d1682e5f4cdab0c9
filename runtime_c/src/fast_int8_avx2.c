/* The kernels over bytes for x86-64 with AVX2: products of 16-bit numbers, whose sums by two are exact. */
#include "fast_int8_set.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2,tune=haswell")
#endif

#define LIFTS 0
#define WIDENS 2
typedef int16_t byte;
typedef __m256i vx;
#define SPLAT4(p) _mm256_set1_epi32(two_at(p))
#define DOT(s, w, x) dot(s, w, x)

INLINE int32_t two_at(const int16_t *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

#include "fast_int8_ymm.h"

/* In C, GCC would begin with many products, whose sums then find no register. */
#define ADD_PRODUCTS(s, w, x)                                                                            \
    do {                                                                                                 \
        __m256i product;                                                                                 \
        __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(s), "=&x"(product) : "x"(x), "x"(w)); \
    } while (0)

INLINE va dot(va s, const int16_t *w, __m256i x)
{
    ADD_PRODUCTS(s.part[0], eight_at(w), x);
    ADD_PRODUCTS(s.part[1], eight_at(w + LN_PANEL), x);
    return s;
}

INLINE __m128i pixel(const void *p)
{
    return _mm_loadu_si128(p);
}

/* One row, whose weights are read once: as stored, of which there are half as many bytes. */
static void one_row8(const ln_product8 *p, const uint8_t *w, const int16_t *x, int8_t *y, uint32_t panel, uint32_t panel_end)
{
    for (; panel < panel_end; panel++) {
        const uint32_t o = panel * LN_PANEL, live = p->O - o < LN_PANEL ? p->O - o : LN_PANEL, width = (live + 3) & ~3u;
        const uint8_t *at = w + panel * p->stored;
        const pv put = put_load(at, at + 4 * (size_t)width);
        __m256i s[4] = {_mm256_setzero_si256()}; /* of four channels, each in two parts */
        int8_t kept[LN_PANEL];
        UNROLL
        for (int j = 1; j < 4; j++) s[j] = s[0];
        at += 8 * (size_t)width;
        for (size_t k = 0; k < p->n; k += 4, at += 4 * (size_t)width) {
            int64_t four;
            __builtin_memcpy(&four, x + k, sizeof four);
            UNROLL
            for (int j = 0; j < 4; j++) /* behind a narrow panel, of what follows it */
                s[j] = _mm256_add_epi32(s[j], _mm256_madd_epi16(_mm256_set1_epi64x(four), _mm256_cvtepi8_epi16(pixel(at + 16 * j))));
        }
        const va whole = {{_mm256_permute4x64_epi64(_mm256_hadd_epi32(s[0], s[1]), 0xD8),
                           _mm256_permute4x64_epi64(_mm256_hadd_epi32(s[2], s[3]), 0xD8)}};
        const va sums = added(whole, put.bias);
        put_tile(&sums, &put, p->q, kept, 0, 1, 1);
        for (uint32_t j = 0; j < live; j++) y[o + j] = kept[j];
    }
}

#define ONE_ROW8

/* Bytes of two taps side by side, as 16-bit numbers, for each of 16 channels. */
typedef struct dw_pair {
    __m256i part[2];
} dw_pair;

INLINE dw_pair dw_side_by_side(__m128i a, __m128i b)
{
    return (dw_pair){{_mm256_cvtepi8_epi16(_mm_unpacklo_epi8(a, b)), _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(a, b))}};
}

typedef va dw_sums;
#define DW_ZERO ZERO

INLINE dw_sums dw_dot(dw_sums s, dw_pair x, dw_pair w)
{
    s.part[0] = _mm256_add_epi32(s.part[0], _mm256_madd_epi16(x.part[0], w.part[0]));
    s.part[1] = _mm256_add_epi32(s.part[1], _mm256_madd_epi16(x.part[1], w.part[1]));
    return s;
}

/* y[j] = clamp(z + ((s[j] + c) >> shift), lo, hi) for 16 sums */
INLINE void shift16(dw_sums s, int32_t c, uint32_t shift, ln_quantum q, int8_t *y)
{
    const __m256i rest = _mm256_set1_epi32(c), z = _mm256_set1_epi32(q.z);
    const __m128i by = _mm_cvtsi32_si128((int)shift);
    for (int i = 0; i < 2; i++) s.part[i] = _mm256_add_epi32(_mm256_sra_epi32(_mm256_add_epi32(s.part[i], rest), by), z);
    store_held(s, q, y);
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

#define PRODUCTS 24
#define WINO_PRODUCTS 24
#define WIDE 16
#define WIDE_LOAD(p) _mm256_cvtepi8_epi16(pixel(p))
#define SUMS 8
#define WINO_MOST 6
#define WINO_SUMS __m256i
#define WINO_ZERO _mm256_setzero_si256()
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
