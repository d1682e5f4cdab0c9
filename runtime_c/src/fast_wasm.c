/* The kernels for WebAssembly, where the module is built with -msimd128; -mrelaxed-simd adds a multiply-add that is
 * rounded once where the processor has it. Every byte is fetched by the page: rare things are not unrolled, half
 * weights are widened once, and there are no tiles that the 16 vector registers below cannot hold. */
#include "fast.h"

#if defined(__wasm_simd128__)
#include <wasm_simd128.h>

#define LANES 4
#define ROWS 4
#define COLUMNS 2
#define TILES(T, V) T(1, V) T(2, V) T(3, V) T(4, V)
#define NARROW_ROWS ROWS
#define NARROW_TILES TILES
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
#define LOAD(p) ((vf)wasm_v128_load(p))
#define STORE(p, v) wasm_v128_store(p, (v128_t)(v))
#define SPLAT(x) ((vf)wasm_f32x4_splat(x))
#ifdef __wasm_relaxed_simd__
#define MADD(a, b, c) ((vf)wasm_f32x4_relaxed_madd((v128_t)(a), (v128_t)(b), (v128_t)(c)))
#define NMADD(a, b, c) ((vf)wasm_f32x4_relaxed_nmadd((v128_t)(a), (v128_t)(b), (v128_t)(c))) /* c - a * b */
#else
#define MADD(a, b, c) ((a) * (b) + (c))
#define NMADD(a, b, c) ((c) - (a) * (b))
#endif
#define ABOVE(floor, x) ((vf)wasm_f32x4_pmax((v128_t)(x), (v128_t)(floor))) /* x < floor ? floor : x */
#define BELOW(ceiling, x) ((vf)wasm_f32x4_pmin((v128_t)(x), (v128_t)(ceiling)))
#define LARGER larger_of
#define FETCH(p) (void)(p)
#define LOAD_FIRST(p, n) load_first(p, n)
#define STORE_FIRST(p, v, n) store_first(p, v, n)

/* Each order of a pair loses the NaN that the other keeps; all ones are one, whatever it was met by. */
static inline __attribute__((always_inline)) vf larger_of(vf a, vf b)
{
    const vf v = (vf)((vi)ABOVE(a, b) | (vi)ABOVE(b, a));
    return (vf)((vi)v | (v != v));
}

static __attribute__((noinline)) vf load_first(const float *x, size_t n)
{
    float t[LANES] = {0};
    for (size_t i = 0; i < n; i++) t[i] = x[i];
    return LOAD(t);
}

static __attribute__((noinline)) void store_first(float *y, vf v, size_t n)
{
    float t[LANES];
    STORE(t, v);
    for (size_t i = 0; i < n; i++) y[i] = t[i];
}

#define HALVES 0
#define POSITIONS 4
#define UNROLL_LONG
#define HEAVY static __attribute__((noinline))
#define WINDOW_TILES 1
#define FINISHING 0
#define POOL_TILES 1
#define HALF_PANELS 1
#if __clang_major__ >= 22 /* 19 has no place for a vector there */
#define IN_ORDER(v) __asm__ volatile("" : "+r"(v) : : "memory") /* engines keep the module's order: 5 % of mobilenets */
#endif
#define OWN_TRANSFORMS "fast_wasm_winograd.h"
#define KERNELS ln_kernels_wasm
#ifdef __wasm_relaxed_simd__
#define KERNELS_NAME "wasm relaxed"
#else
#define KERNELS_NAME "wasm"
#endif
#define KERNELS_NARROW NULL
#include "fast_kernels.h"
#endif
