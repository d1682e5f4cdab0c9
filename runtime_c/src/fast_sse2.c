/* The kernels for every x86-64: SSE2, vectors of 4. */
#include "fast.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <emmintrin.h>

#include "ln_vec8.h"

#define LANES 4
#define ROWS 4
#define COLUMNS 2
#define TILES(T, V) T(1, V) T(2, V) T(3, V) T(4, V)
#define NARROW_ROWS ROWS
#define NARROW_TILES TILES
typedef __m128 vf;
typedef int32_t vi __attribute__((vector_size(16)));
#define LOAD(p) _mm_loadu_ps(p)
#define STORE(p, v) _mm_storeu_ps(p, v)
#define UPPER(p) _mm_unpacklo_epi16(_mm_setzero_si128(), _mm_loadl_epi64((const __m128i *)(const void *)(p)))
#define LOADH(p) ((vf)ln_upper_f16((ln_bits4)UPPER(p)))
#define SPLAT(x) _mm_set1_ps(x)
#define MADD(a, b, c) ((a) * (b) + (c))
#define ABOVE(floor, x) _mm_max_ps(floor, x)
#define BELOW(ceiling, x) _mm_min_ps(ceiling, x)
#define FETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define HALVES 0 /* processors with no more have no instruction for them */
#define POSITIONS 4 /* what 16 registers hold, and little code for processors that are few by now */
#define UNROLL_LONG
#define HEAVY static __attribute__((noinline))
#define WINDOW_TILES 0
#define FINISHING 0
#define KERNELS ln_kernels_sse2
#define KERNELS_NAME "sse2"
#define KERNELS_NARROW NULL
#include "fast_kernels.h"
#endif
