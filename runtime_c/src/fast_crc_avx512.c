/* The part of fast_crc.c for processors that fold four pieces of 16 bytes with one instruction: VPCLMULQDQ and AVX-512. */
#include "fast.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define FOLDS __attribute__((target("avx512f,vpclmulqdq")))
#define LOAD(p) _mm512_loadu_si512(p)

FOLDS static inline __m512i fold(__m512i x, __m512i by, __m512i next)
{
    const __m512i low = _mm512_clmulepi64_epi128(x, by, 0x00), high = _mm512_clmulepi64_epi128(x, by, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); /* the sum of three */
}

FOLDS size_t ln_fold_wide(uint8_t *sum, const uint8_t *p, size_t len)
{
    enum { STEP = 256 };
    const uint8_t *begin = p;
    const __m512i far = _mm512_set4_epi64(0, 0, 0x1322D1430, 0x11542778A); /* x^(2048-32), x^(2048+32) */
    const __m512i near = _mm512_set4_epi64(0, 0, 0x1C6E41596, 0x154442BD4); /* x^(512-32), x^(512+32) */
    const __m512i every = _mm512_shuffle_i64x2(far, far, 0), each = _mm512_shuffle_i64x2(near, near, 0);
    __m512i x0 = LOAD(sum), x1 = LOAD(p), x2 = LOAD(p + 64), x3 = LOAD(p + 128);

    for (p += 192, len -= 192; len >= STEP; p += STEP, len -= STEP) {
        x0 = fold(x0, every, LOAD(p));
        x1 = fold(x1, every, LOAD(p + 64));
        x2 = fold(x2, every, LOAD(p + 128));
        x3 = fold(x3, every, LOAD(p + 192));
    }
    _mm512_storeu_si512(sum, fold(fold(fold(x0, each, x1), each, x2), each, x3));
    return (size_t)(p - begin);
}
#endif
