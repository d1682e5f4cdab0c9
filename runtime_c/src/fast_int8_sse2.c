/* The kernels over bytes for every x86-64: products of 16-bit numbers, whose sums by two are exact. */
#include "fast_int8_set.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <emmintrin.h>

#define OUTS 2 /* each in two parts */
#define LIFTS 0
#define WIDENS 1
#define VECTORS 4
typedef int16_t byte;
typedef __m128i va, vx;
#define ZERO _mm_setzero_si128()
#define SPLAT4(p) twice(_mm_loadl_epi64((const __m128i *)(const void *)(p)))
#define DOT(s, w, x) _mm_add_epi32(s, _mm_madd_epi16(x, four_at(w)))
#define FOLD(to, s, v)                                                                                      \
    do {                                                                                                    \
        for (int f = 0; f < (v); f += 2) _mm_storeu_si128((__m128i *)(void *)((to) + f * 2), whole((s)[f], (s)[f + 1])); \
    } while (0)

INLINE __m128i twice(__m128i v)
{
    return _mm_unpacklo_epi64(v, v);
}

INLINE __m128i four_at(const void *p)
{
    return _mm_loadu_si128(p);
}

INLINE __m128i whole(__m128i a, __m128i b) /* a0+a1, a2+a3, b0+b1, b2+b3 */
{
    const __m128 x = _mm_castsi128_ps(a), y = _mm_castsi128_ps(b);
    return _mm_add_epi32(_mm_castps_si128(_mm_shuffle_ps(x, y, 0x88)), _mm_castps_si128(_mm_shuffle_ps(x, y, 0xDD)));
}

typedef struct pv { /* biases and multipliers of 16 channels */
    __m128i bias[4], scale[4];
} pv;

INLINE pv put_load(const uint8_t *bias, const uint8_t *scale)
{
    pv p;
    for (int i = 0; i < 4; i++) {
        p.bias[i] = four_at(bias + 16 * i);
        p.scale[i] = four_at(scale + 16 * i);
    }
    return p;
}

/* 2^shift (z + requant(a, m)) and a rest that the shift drops. There is no signed product of 64 bits: an unsigned one sees a
 * negative a as a + 2^32, which is m 2^32 too much, and of the bits from 31 on 2 m. */
INLINE __m128i requant(__m128i a, __m128i m, ln_quantum q)
{
    const __m128i half = _mm_set1_epi64x((2 * (int64_t)q.z + 1) * ((int64_t)1 << (30 + q.shift))), high = _mm_set_epi32(-1, 0, -1, 0);
    const __m128i even = _mm_add_epi64(_mm_mul_epu32(a, m), half);
    const __m128i odd = _mm_add_epi64(_mm_mul_epu32(_mm_srli_epi64(a, 32), _mm_srli_epi64(m, 32)), half);
    const __m128i r = _mm_or_si128(_mm_andnot_si128(high, _mm_srli_epi64(even, 31)),
                                   _mm_and_si128(high, _mm_slli_epi64(odd, 1)));
    return _mm_sub_epi32(r, _mm_and_si128(_mm_srai_epi32(a, 31), _mm_add_epi32(m, m)));
}

INLINE void store_held(const __m128i *r, uint32_t shift, ln_quantum q, int8_t *y)
{
    const __m128i lo = _mm_set1_epi16((int16_t)q.lo), hi = _mm_set1_epi16((int16_t)q.hi), by = _mm_cvtsi32_si128((int)shift);
    const __m128i a = _mm_sra_epi16(_mm_packs_epi32(r[0], r[1]), by), b = _mm_sra_epi16(_mm_packs_epi32(r[2], r[3]), by);
    const __m128i c = _mm_min_epi16(_mm_max_epi16(a, lo), hi), d = _mm_min_epi16(_mm_max_epi16(b, lo), hi);
    _mm_storeu_si128((__m128i *)(void *)y, _mm_packs_epi16(c, d));
}

/* y[j] = clamp(z + requant(s[j] + bias[j], scale[j]), lo, hi) for 16 channels */
INLINE void put16(const int32_t *s, const pv *p, ln_quantum q, int8_t *y)
{
    __m128i r[4];
    for (int i = 0; i < 4; i++) r[i] = requant(_mm_add_epi32(four_at(s + 4 * i), p->bias[i]), p->scale[i], q);
    store_held(r, q.shift, q, y);
}

/* Bytes of two taps side by side, as 16-bit numbers, for each of 16 channels. */
typedef struct dw_pair {
    __m128i part[4];
} dw_pair;

typedef dw_pair dw_sums;
#define DW_ZERO ((dw_sums){{ZERO, ZERO, ZERO, ZERO}})

INLINE __m128i pixel(const void *p)
{
    return _mm_loadu_si128(p);
}

INLINE __m128i upper(__m128i bytes) /* of each 16 bits, the upper byte as a signed number */
{
    return _mm_srai_epi16(bytes, 8);
}

INLINE dw_pair dw_side_by_side(__m128i a, __m128i b)
{
    const __m128i low = _mm_unpacklo_epi8(a, b), high = _mm_unpackhi_epi8(a, b);
    return (dw_pair){{upper(_mm_unpacklo_epi8(low, low)), upper(_mm_unpackhi_epi8(low, low)),
                      upper(_mm_unpacklo_epi8(high, high)), upper(_mm_unpackhi_epi8(high, high))}};
}

INLINE dw_sums dw_dot(dw_sums s, dw_pair x, dw_pair w)
{
    UNROLL
    for (int i = 0; i < 4; i++) s.part[i] = _mm_add_epi32(s.part[i], _mm_madd_epi16(x.part[i], w.part[i]));
    return s;
}

/* y[j] = clamp(z + ((s[j] + c) >> shift), lo, hi) for 16 sums */
INLINE void shift16(dw_sums s, int32_t c, ln_quantum q, int8_t *y)
{
    const __m128i rest = _mm_set1_epi32(c), z = _mm_set1_epi32(q.z), by = _mm_cvtsi32_si128((int)q.shift);
    for (int i = 0; i < 4; i++) s.part[i] = _mm_add_epi32(_mm_sra_epi32(_mm_add_epi32(s.part[i], rest), by), z);
    store_held(s.part, 0, q, y);
}

INLINE dw_pair dw_twice(int32_t two) /* the same two for every channel */
{
    const __m128i v = _mm_set1_epi32(two);
    return (dw_pair){{v, v, v, v}};
}

/* ln_rounded of x[i] inverse, 16 times */
INLINE dw_sums dw_rounded(const float *x, float inverse)
{
    const __m128 sign = _mm_set1_ps(-0.0f), half = _mm_set1_ps(0.5f), most = _mm_set1_ps(512.0f);
    dw_sums s;
    for (int i = 0; i < 4; i++) {
        const __m128 product = _mm_mul_ps(_mm_loadu_ps(x + 4 * i), _mm_set1_ps(inverse));
        const __m128 t = _mm_min_ps(most, _mm_max_ps(_mm_set1_ps(-512.0f), product));
        const __m128 moved = _mm_add_ps(t, _mm_or_ps(_mm_and_ps(t, sign), half));
        s.part[i] = _mm_cvttps_epi32(_mm_and_ps(moved, _mm_cmpord_ps(t, t)));
    }
    return s;
}

INLINE dw_sums dw_times128(dw_sums s)
{
    UNROLL
    for (int i = 0; i < 4; i++) s.part[i] = _mm_slli_epi32(s.part[i], 7);
    return s;
}

#define PRODUCTS 8

#define DW_PIXEL __m128i
#define DW_NONE _mm_setzero_si128()
#define INT8 ln_int8_sse2
#define INT8_NAME "sse2"
#include "fast_int8_kernels.h"
#endif
