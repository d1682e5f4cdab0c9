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
#define DOUBLED /* sums, and with them biases: weights come so */
#define DW_WEIGHTS(p) doubled(p)
typedef int16_t byte;
typedef __m256i vx;
#define SPLAT4(p) _mm256_set1_epi32(two_at(p))
#define DOT dot

INLINE int32_t two_at(const int16_t *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

#include "fast_int8_ymm.h"

/* In C, GCC would begin with many products, whose sums then find no register. Both products before both sums: 5 % faster. */
#define ADD_PRODUCTS "vpmaddwd %4, %2, %3\n\tvpmaddwd %5, %2, %2\n\tvpaddd %3, %0, %0\n\tvpaddd %2, %1, %1"

INLINE va dot(va s, const int16_t *w, __m256i x, const int half)
{
    __m256i product;
    if (half)
        __asm__("vpmaddwd %2, %1, %1\n\tvpaddd %1, %0, %0" : "+x"(s.part[0]), "+x"(x) : "x"(eight_at(w)));
    else
        __asm__(ADD_PRODUCTS
                : "+x"(s.part[0]), "+x"(s.part[1]), "+x"(x), "=&x"(product)
                : "x"(eight_at(w)), "x"(eight_at(w + LN_PANEL)));
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
        const va sums = added(added(whole, whole), put.bias);
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

INLINE dw_pair doubled(dw_pair p)
{
    return (dw_pair){{_mm256_slli_epi16(p.part[0], 1), _mm256_slli_epi16(p.part[1], 1)}};
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
INLINE __m256i shifted(dw_sums s, int32_t c, ln_quantum q)
{
    const __m256i rest = _mm256_set1_epi32(c);
    const __m128i by = _mm_cvtsi32_si128((int)q.shift);
    for (int i = 0; i < 2; i++) s.part[i] = _mm256_sra_epi32(_mm256_add_epi32(s.part[i], rest), by);
    return _mm256_adds_epi16(_mm256_packs_epi32(s.part[0], s.part[1]), _mm256_set1_epi16((int16_t)q.z));
}

INLINE void shift16(dw_sums s, int32_t c, ln_quantum q, int8_t *y)
{
    const __m256i words = shifted(s, c, q);
    _mm_storeu_si128((__m128i *)(void *)y, _mm256_castsi256_si128(held(words, words, q)));
}

INLINE void shift32(dw_sums a, dw_sums b, int32_t c, ln_quantum q, int8_t *y)
{
    _mm256_storeu_si256((__m256i *)(void *)y, held(shifted(a, c, q), shifted(b, c, q), q));
}

#define SHIFTS_32

INLINE dw_pair dw_twice(int32_t two) /* the same two for every channel */
{
    return (dw_pair){{_mm256_set1_epi32(two), _mm256_set1_epi32(two)}};
}

INLINE dw_sums dw_times128(dw_sums s)
{
    return (dw_sums){{_mm256_slli_epi32(s.part[0], 7), _mm256_slli_epi32(s.part[1], 7)}};
}

/* ---- floats to bytes: rounding moves them by a half away from zero, and cuts */

INLINE __m256i cut(const float *x, __m256 inverse, __m256 *nothing)
{
    const __m256 from = _mm256_loadu_ps(x), t = _mm256_min_ps(_mm256_mul_ps(from, inverse), _mm256_set1_ps(512.0f));
    const __m256 away = _mm256_or_ps(_mm256_and_ps(t, _mm256_set1_ps(-0.0f)), _mm256_set1_ps(0.5f));
    *nothing = _mm256_or_ps(*nothing, _mm256_sub_ps(from, from)); /* of what is not finite no zero */
    return _mm256_cvttps_epi32(_mm256_add_ps(t, away));            /* the least int32_t, where it is less */
}

/* z + x inverse; 0 where one is not finite */
int enter8(const float *x, int8_t *y, size_t n, float inverse, int32_t z)
{
    const __m256 by = _mm256_set1_ps(inverse);
    const __m256i zero = _mm256_set1_epi16((int16_t)z);
    const ln_quantum all = {0, -128, 127, 0, 0};
    __m256 nothing = _mm256_setzero_ps();
    for (size_t i = 0; i < n; i += 32) {
        const float *from = x + i;
        const size_t left = n - i;
        float some[32];
        if (left < 32) {
            for (size_t k = 0; k < 32; k++) some[k] = k < left ? from[k] : 0;
            from = some;
        }
        const __m256i a = _mm256_packs_epi32(cut(from, by, &nothing), cut(from + 8, by, &nothing));
        const __m256i b = _mm256_packs_epi32(cut(from + 16, by, &nothing), cut(from + 24, by, &nothing));
        const __m256i bytes = held(_mm256_adds_epi16(a, zero), _mm256_adds_epi16(b, zero), all);
        if (left < 32) __builtin_memcpy(y + i, &bytes, left);
        else _mm256_storeu_si256((__m256i *)(void *)(y + i), bytes);
    }
    return _mm256_movemask_epi8(_mm256_cmpeq_epi32(_mm256_castps_si256(nothing), _mm256_setzero_si256())) == -1;
}

void sum8(const int8_t *x, int32_t *sum, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256i eight = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(x + i)));
        _mm256_storeu_si256((__m256i *)(void *)(sum + i), _mm256_add_epi32(eight_at(sum + i), eight));
    }
    for (; i < n; i++) sum[i] += x[i];
}

#define OWN_ENTER
#define OWN_SUM8
#define PRODUCTS 24
#define WINO_PRODUCTS 24
#define WIDE 16
#define WIDE_LOAD(p) _mm256_cvtepi8_epi16(pixel(p))
#define SUMS 8
#define WINO_MOST 6
#define WINO_SUMS __m256i
#define WINO_ZERO _mm256_setzero_si256()
#define WINO_TILES(T) T(2) T(4) T(6)
#define STEP_CHANNELS 2
#define WINO_PAIRS 1

/* R rows, LN_WINO8_CHUNK numbers apart: two channels' products are their sums, or are added to them. */
INLINE void start_sums(__m256i *s, const int16_t *w, const int16_t *x, const int R)
{
    UNROLL
    for (int m = 0; m < R; m++) {
        const __m256i two = SPLAT4(x + m * LN_WINO8_CHUNK);
        s[2 * m] = _mm256_madd_epi16(two, eight_at(w));
        s[2 * m + 1] = _mm256_madd_epi16(two, eight_at(w + LN_PANEL));
    }
}

#define START_SUMS start_sums

typedef struct two_inputs {
    int16_t x[2];
} two_inputs;

/* With its inputs read ahead, clang would move sums from register to register: 12 of them, two weights, inputs and a product
 * are all there are. */
INLINE void step_sums(__m256i *s, const int16_t *w, const int16_t *x, const int R)
{
    const __m256i low = eight_at(w), high = eight_at(w + LN_PANEL);
    UNROLL
    for (int m = 0; m < R; m++) {
        const two_inputs *at = (const two_inputs *)(const void *)(x + m * LN_WINO8_CHUNK);
        __m256i inputs, product;
        __asm__("vpbroadcastd %6, %2\n\t" ADD_PRODUCTS
                : "+x"(s[2 * m]), "+x"(s[2 * m + 1]), "=&x"(inputs), "=&x"(product) : "x"(low), "x"(high), "m"(*at));
    }
}

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
