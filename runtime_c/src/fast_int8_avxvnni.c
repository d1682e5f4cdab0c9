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

#define OUTS 8
#define LIFTS 1
#define WIDENS 0
typedef int8_t byte;
#define VECTORS 2
#define TILE_PANELS 1
#define TILES8(T) T(1, 2) T(2, 2) T(4, 2) T(6, 2)
typedef __m256i va, vx;
#define ZERO _mm256_setzero_si256()
#define SPLAT4(p) _mm256_set1_epi32(word_at(p))
#define DOT(s, w, x) DPBUSD(s, x, eight_at(w))
#define FOLD(to, s, v)                                                                                  \
    do {                                                                                                \
        UNROLL                                                                                          \
        for (int f = 0; f < (v); f++) _mm256_storeu_si256((__m256i *)(void *)((to) + f * 8), (s)[f]);   \
    } while (0)

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
