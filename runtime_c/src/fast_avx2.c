/* The kernels for x86-64 with AVX2, FMA and F16C: vectors of 8. */
#include "fast.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,tune=haswell") /* others keep addresses in vector registers */
#endif

#define LANES 8
#define ROWS 6
#define COLUMNS 2
#define TILES(T, V) T(1, V) T(2, V) T(3, V) T(4, V) T(5, V) T(6, V)
#define NARROW_ROWS 8 /* as many sums as hide the latency of a multiply-add */
#define NARROW_TILES(T, V) TILES(T, V) T(7, V) T(8, V)
typedef __m256 vf;
typedef int32_t vi __attribute__((vector_size(32)));
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define LOADH(p) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define SPLAT(x) _mm256_set1_ps(x)
#define MADD(a, b, c) _mm256_fmadd_ps(a, b, c)
#define ABOVE(floor, x) _mm256_max_ps(floor, x)
#define BELOW(ceiling, x) _mm256_min_ps(ceiling, x)
#define PRELU(v, slope) _mm256_blendv_ps((v) * (slope), v, _mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_GT_OQ))
#define FIRST(n) _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
#define LOAD_FIRST(p, n) _mm256_maskload_ps(p, FIRST(n))
#define STORE_FIRST(p, v, n) _mm256_maskstore_ps(p, FIRST(n), v)
#define FETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define HALVES 1
#define WINDOW_TILES 1
#define UNROLL_LONG
#define HEAVY static __attribute__((noinline))
#define POSITIONS 4 /* eight do not fit 16 registers beside nine taps: at most 3.5 % faster, for 11 KB of code */
#define FIVES_OF_8 /* beside five taps they do fit */
#define FINISHING 0
#define KERNELS ln_kernels_avx2
#define KERNELS_NAME "avx2"
#define KERNELS_NARROW NULL
#include "fast_kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
