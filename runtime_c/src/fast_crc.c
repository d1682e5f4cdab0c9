/* CRC-32 by the processor's own instructions, as ln_crc.c has it: a file of 47 MB is checked in 2 or 3 ms, not 20. */
#include "fast.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <emmintrin.h>
#include <wmmintrin.h>

/* A polynomial over bits is folded: what stands n bits ahead of the data behind it counts there times x^n modulo the
 * CRC's polynomial, so 128 bits, multiplied by two constants, are added to those 512 bits later; in the end to those
 * 128 bits later. What is left, 16 bytes, has the same CRC as all that went in. (Gopal and others, Intel 2009.) Large
 * files go 2048 bits at a time first, where the processor can (fast_crc_avx512.c). */
enum { FOLDED = 64, WIDE = 1 << 18 }; /* bytes; to ask whether 512 bits are folded takes a virtual machine 20 us */

#if defined(__clang__)
#define FOLDS __attribute__((target("pclmul")))
#else
#define FOLDS __attribute__((target("pclmul,sse2")))
#endif

#define LOAD(p) _mm_loadu_si128((const __m128i *)(const void *)(p))

FOLDS static __m128i fold(__m128i x, __m128i by, __m128i next)
{
    const __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

static int folds_wide(void)
{
    enum { VPCLMULQDQ = 1 << 10 }; /* leaf 7, ecx */
    unsigned a, b, c, d;
    return ln_fast_has(LN_KERNELS_AVX512) && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (c & VPCLMULQDQ);
}

FOLDS static uint32_t by_folding(uint32_t crc, const uint8_t *p, size_t len) /* len at least FOLDED */
{
    const __m128i far = _mm_set_epi64x(0x1C6E41596, 0x154442BD4); /* x^(512-32), x^(512+32), bits reversed */
    const __m128i near = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0); /* x^(128-32), x^(128+32) */
    __m128i x0 = _mm_xor_si128(LOAD(p), _mm_cvtsi32_si128((int32_t)~crc));
    __m128i x1 = LOAD(p + 16), x2 = LOAD(p + 32), x3 = LOAD(p + 48);
    uint8_t left[FOLDED];

    if (len >= WIDE && folds_wide()) {
        __m128i *sum = (__m128i *)(void *)left;
        _mm_storeu_si128(sum, x0), _mm_storeu_si128(sum + 1, x1);
        _mm_storeu_si128(sum + 2, x2), _mm_storeu_si128(sum + 3, x3);
        const size_t done = ln_fold_wide(left, p + FOLDED, len - FOLDED);
        p += done, len -= done;
        x0 = LOAD(left), x1 = LOAD(left + 16), x2 = LOAD(left + 32), x3 = LOAD(left + 48);
    }
    for (p += FOLDED, len -= FOLDED; len >= FOLDED; p += FOLDED, len -= FOLDED) {
        x0 = fold(x0, far, LOAD(p));
        x1 = fold(x1, far, LOAD(p + 16));
        x2 = fold(x2, far, LOAD(p + 32));
        x3 = fold(x3, far, LOAD(p + 48));
    }
    x0 = fold(fold(fold(x0, near, x1), near, x2), near, x3);
    for (; len >= 16; p += 16, len -= 16) x0 = fold(x0, near, LOAD(p));
    _mm_storeu_si128((__m128i *)(void *)left, x0);
    return ln_crc32(ln_crc32(~(uint32_t)0, left, 16), p, len);
}

uint32_t ln_fast_crc32(uint32_t crc, const void *data, size_t len)
{
    enum { PCLMULQDQ = 1 << 1 }; /* leaf 1, ecx */
    unsigned a, b, c, d;
    if (len < 2 * FOLDED || !__get_cpuid(1, &a, &b, &c, &d) || !(c & PCLMULQDQ)) return ln_crc32(crc, data, len);
    return by_folding(crc, data, len);
}

#elif defined(__aarch64__) && defined(__GNUC__) && (defined(__linux__) || defined(__ARM_FEATURE_CRC32))

#if defined(__ARM_FEATURE_CRC32)
static int has_crc(void)
{
    return 1;
}
#else
#include <sys/auxv.h>

static int has_crc(void)
{
    enum { CRC32 = 1 << 7 }; /* HWCAP_CRC32 */
    return (getauxval(AT_HWCAP) & CRC32) != 0;
}
#endif

uint32_t ln_fast_crc32(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;
    if (!has_crc()) return ln_crc32(crc, data, len);
    crc = ~crc;
    for (; len >= 8; len -= 8, p += 8) {
        uint64_t eight;
        __builtin_memcpy(&eight, p, sizeof eight);
        __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %1" : "+r"(crc) : "r"(eight));
    }
    return ln_crc32(~crc, p, len);
}

#else

uint32_t ln_fast_crc32(uint32_t crc, const void *data, size_t len)
{
    return ln_crc32(crc, data, len);
}

#endif

ln_status ln_fast_open(ln_model *m, const void *bin, size_t len)
{
    return ln_open_checked(m, bin, len, ln_fast_crc32);
}
