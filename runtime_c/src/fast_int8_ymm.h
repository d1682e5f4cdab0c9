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
void add8(const int8_t *a, const int8_t *b, int8_t *y, size_t n, int32_t m1, int32_t m2, int32_t c, uint32_t shift,
          ln_quantum q);
void most8(const int8_t *x, int8_t *y, size_t n);
int enter8(const float *x, int8_t *y, size_t n, float inverse, int32_t z);
void sum8(const int8_t *x, int32_t *sum, size_t n);

INLINE __m256i eight_at(const void *p)
{
    return _mm256_loadu_si256(p);
}

typedef struct pv { /* biases and multipliers of 16 channels */
    __m256i bias[2], scale[2];
} pv;

INLINE pv put_load(const uint8_t *bias, const uint8_t *scale)
{
    return (pv){{eight_at(bias), eight_at(bias + 32)}, {eight_at(scale), eight_at(scale + 32)}};
}

INLINE __m256i requant(__m256i a, __m256i m)
{
    const __m256i half = _mm256_set1_epi64x(1 << 30);
    const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(a, m), half);
    const __m256i odd = _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(m, 32)), half);
    return _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xAA);
}

INLINE void store_held(__m256i a, __m256i b, ln_quantum q, int8_t *y)
{
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
    __m128i r = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    r = _mm_min_epi8(_mm_max_epi8(r, _mm_set1_epi8((int8_t)q.lo)), _mm_set1_epi8((int8_t)q.hi));
    _mm_storeu_si128((__m128i *)(void *)y, r);
}

/* y[j] = clamp(z + requant(s[j] + bias[j], scale[j]), lo, hi) for 16 channels */
INLINE void put16(const int32_t *s, const pv *p, ln_quantum q, int8_t *y)
{
    const __m256i z = _mm256_set1_epi32(q.z);
    store_held(_mm256_add_epi32(requant(_mm256_add_epi32(eight_at(s), p->bias[0]), p->scale[0]), z),
               _mm256_add_epi32(requant(_mm256_add_epi32(eight_at(s + 8), p->bias[1]), p->scale[1]), z), q, y);
}
