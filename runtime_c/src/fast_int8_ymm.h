/* What the two sets of kernels over bytes for vectors of 256 bits share: how sums become bytes, and what AVX-VNNI takes from
 * AVX2 as it is. Included before fast_int8_kernels.h. */

#define depthwise8 ln_avx2_depthwise8
#define wino8 ln_avx2_wino8
#define add8 ln_avx2_add8
#define most8 ln_avx2_most8
#define enter8 ln_avx2_enter8
#define sum8 ln_avx2_sum8

void depthwise8(const ln_depthwise8 *d, const uint8_t *w, const int8_t *x, int8_t *y, uint32_t row, uint32_t row_end,
                uint32_t panel, uint32_t panel_end);
void wino8(const ln_wino8 *p, const uint8_t *w, const int8_t *x, int8_t *y, void *scratch, uint32_t first, uint32_t end,
           uint32_t panel, uint32_t panel_end);
void add8(const int8_t *a, const int8_t *b, int8_t *y, size_t n, int32_t m1, int32_t m2, int32_t c, ln_quantum q);
void most8(const int8_t *x, int8_t *y, size_t n);
int enter8(const float *x, int8_t *y, size_t n, float inverse, int32_t z);
void sum8(const int8_t *x, int32_t *sum, size_t n);

INLINE __m256i eight_at(const void *p)
{
    return _mm256_loadu_si256(p);
}

/* A panel's sums: channels 0 to 7, and 8 to 15. */
typedef struct va {
    __m256i part[2];
} va;

#define OWN_PRODUCT "fast_int8_ymm_product.h"
#define ZERO ((va){{_mm256_setzero_si256(), _mm256_setzero_si256()}})
#define PUTS_TILES

INLINE va sixteen_at(const void *p)
{
    return (va){{eight_at(p), eight_at((const uint8_t *)p + 32)}};
}

INLINE va added(va a, va b)
{
    return (va){{_mm256_add_epi32(a.part[0], b.part[0]), _mm256_add_epi32(a.part[1], b.part[1])}};
}

INLINE va most_of(va a, va b)
{
    return (va){{_mm256_max_epi32(a.part[0], b.part[0]), _mm256_max_epi32(a.part[1], b.part[1])}};
}

typedef struct pv { /* biases and multipliers of a panel */
    va bias, scale;
} pv;

INLINE pv put_load(const uint8_t *bias, const uint8_t *scale)
{
    const va b = sixteen_at(bias);
#ifdef DOUBLED
    return (pv){added(b, b), sixteen_at(scale)};
#else
    return (pv){b, sixteen_at(scale)};
#endif
}

INLINE __m256i odd_of(__m256i a)
{
    a = _mm256_srli_epi64(a, 32);
#if defined(__clang__) /* it would extend the signs first, by three instructions more: of the product it needs no more than this */
    __asm__("" : "+x"(a));
#endif
    return a;
}

/* 2^shift (z + requant(a, m)) and a rest that the shift drops: the upper half of a product of 64 bits where a is doubled. With
 * DOUBLED it comes so. Of each four results the middle two change places. */
INLINE __m256i requant(__m256i a, __m256i m, ln_quantum q)
{
    const __m256i half = _mm256_set1_epi64x((2 * (int64_t)q.z + 1) * ((int64_t)1 << (31 + q.shift)));
#ifndef DOUBLED
    a = _mm256_add_epi32(a, a);
#endif
    const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(a, m), half);
    const __m256i odd = _mm256_add_epi64(_mm256_mul_epi32(odd_of(a), odd_of(m)), half);
    return _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(even), _mm256_castsi256_ps(odd), 0xDD));
}

INLINE __m256i requant16(va s, const pv *p, ln_quantum q) /* in 16 bits, and in the order of _mm256_packs_epi32 */
{
    return _mm256_packs_epi32(requant(s.part[0], p->scale.part[0], q), requant(s.part[1], p->scale.part[1], q));
}

INLINE __m256i clamped(__m256i a, __m256i b, ln_quantum q)
{
    const __m256i lo = _mm256_set1_epi8((int8_t)q.lo), hi = _mm256_set1_epi8((int8_t)q.hi);
    return _mm256_min_epi8(_mm256_max_epi8(_mm256_packs_epi16(a, b), lo), hi);
}

INLINE __m256i in_order(__m256i bytes)
{
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Two rows of 16 numbers in the order of _mm256_packs_epi32: the first to the lower half. */
INLINE __m256i held(__m256i a, __m256i b, ln_quantum q)
{
    return in_order(clamped(a, b, q));
}

/* The same of what requant made. Mostly there is no shift, and int8's ends are the bounds. */
INLINE __m256i put_held(__m256i a, __m256i b, ln_quantum q)
{
    const __m256i order = _mm256_setr_epi32(0x03010200, 0x07050604, 0x0B090A08, 0x0F0D0E0C, 0x03010200, 0x07050604, 0x0B090A08,
                                            0x0F0D0E0C);
    const __m128i by = _mm_cvtsi32_si128((int)q.shift);
    const int plain = ((uint32_t)q.lo + 128) + (127 - (uint32_t)q.hi) + q.shift == 0;
    const __m256i r = plain ? _mm256_packs_epi16(a, b) : clamped(_mm256_sra_epi16(a, by), _mm256_sra_epi16(b, by), q);
    return _mm256_shuffle_epi8(in_order(r), order);
}

/* The first `rows` of R rows of sums, which have their biases, to bytes. */
INLINE void put_tile(const va *s, const pv *p, ln_quantum q, int8_t *y, size_t step, int rows, const int R)
{
    UNROLL
    for (int m = 0; m < R; m += 2) {
        if (m >= rows) continue;
        const int two = m + 1 < R;
        const __m256i a = requant16(s[m], p, q), b = two ? requant16(s[m + two], p, q) : a, r = put_held(a, b, q);
        _mm_storeu_si128((__m128i *)(void *)(y + (size_t)m * step), _mm256_castsi256_si128(r));
        if (two && m + 1 < rows) _mm_storeu_si128((__m128i *)(void *)(y + (size_t)(m + 1) * step), _mm256_extracti128_si256(r, 1));
    }
}

/* The first `rows` of four rows of sums, of which the first eight channels, to bytes. */
INLINE void put_half(const va *s, const pv *p, ln_quantum q, int8_t *y, size_t step, int rows)
{
    __m256i r[4];
    UNROLL
    for (int m = 0; m < 4; m++) r[m] = requant(s[m].part[0], p->scale.part[0], q);
    const __m256i v = put_held(_mm256_packs_epi32(r[0], r[1]), _mm256_packs_epi32(r[2], r[3]), q);
    int64_t eight[4];
    _mm256_storeu_si256((__m256i *)(void *)eight, v);
    UNROLL
    for (int m = 0; m < 4; m++)
        if (m < rows) __builtin_memcpy(y + (size_t)m * step, eight + m, 8);
}
