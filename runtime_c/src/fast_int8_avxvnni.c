/* The kernels over bytes for x86-64 with AVX-VNNI, as processors have it that lack AVX-512: 32 products and their sums an
 * instruction. With LN_EVEX_VNNI the same kernels use AVX-512's form of that instruction, for tests where there is no other. */
#include "fast_int8_set.h"

#if defined(LN_AVX_VNNI)
#include <immintrin.h>

#if defined(LN_EVEX_VNNI)
#define TARGET __attribute__((target("avx2,avx512vl,avx512vnni")))
#define DPBUSD _mm256_dpbusd_epi32
#else
#define TARGET __attribute__((target("avx2,avxvnni")))
#define DPBUSD _mm256_dpbusd_avx_epi32
#endif
#if defined(__clang__)
#pragma clang attribute push(TARGET, apply_to = function)
#elif defined(LN_EVEX_VNNI)
#pragma GCC target("avx2,avx512vl,avx512vnni,tune=haswell")
#else
#pragma GCC target("avx2,avxvnni,tune=haswell")
#endif

#define LIFTS 1
#define WIDENS 0
typedef int8_t byte;
typedef __m256i vx;
#define SPLAT4(p) _mm256_set1_epi32(word_at(p))
#define DOT(s, w, x, half) ((va){{DPBUSD((s).part[0], x, eight_at(w)), DPBUSD((s).part[1], x, eight_at((w) + 32))}})

#include "fast_int8_ymm.h"

INLINE int32_t word_at(const int8_t *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

#define PRODUCTS 48
#define WINO_PAIRS 1
#define WINO_PRODUCTS 24
#define PRODUCTS_ONLY
#define INT8 ln_int8_avxvnni
#define INT8_NAME "avxvnni"
#include "fast_int8_kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
