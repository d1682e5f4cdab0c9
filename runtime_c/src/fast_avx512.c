/* The kernels for x86-64 with AVX-512F: vectors of 16. */
#include "fast.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512f,fma,f16c,tune=haswell") /* others keep addresses in vector registers */
#endif

#define LANES 16
#define COLUMNS 2 /* panels: 16 sums, and the pointers to 8 rows stay in registers */
#define ROWS 8
#define TILES(T, V) T(1, V) T(2, V) T(3, V) T(4, V) T(5, V) T(6, V) T(7, V) T(8, V)
#define NARROW_ROWS 12
#define NARROW_TILES(T, V)                                                                              \
    TILES(T, V) T(9, V) T(10, V) T(11, V) T(12, V)
typedef __m512 vf;
typedef int32_t vi __attribute__((vector_size(64)));
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define LOADH(p) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define SPLAT(x) _mm512_set1_ps(x)
#define MADD(a, b, c) _mm512_fmadd_ps(a, b, c)
#define ABOVE(floor, x) _mm512_max_ps(floor, x)
#define BELOW(ceiling, x) _mm512_min_ps(ceiling, x)
#define PRELU(v, slope) _mm512_mask_mul_ps(v, _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NGT_UQ), v, slope)
#define FIRST(n) ((__mmask16)((1u << (n)) - 1))
#define LOAD_FIRST(p, n) _mm512_maskz_loadu_ps(FIRST(n), p)
#define STORE_FIRST(p, v, n) _mm512_mask_storeu_ps(p, FIRST(n), v)
#define FETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define HALVES 0
#define TAKES_HALVES 1 /* the narrow ones do */
#define WINDOW_TILES 1
#define FINISHING 1
#define KERNELS ln_kernels_avx512
#define KERNELS_NAME "avx512"
#define KERNELS_NARROW &ln_kernels_avx2
#include "fast_kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
