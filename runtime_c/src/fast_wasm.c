/* The kernels for WebAssembly, where the module is built with -msimd128. */
#include "fast.h"

#if defined(__wasm_simd128__)
#include <wasm_simd128.h>

#include "ln_vec8.h"

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
#define LOADH(p) ((vf)ln_upper_f16((ln_bits4)wasm_i32x4_shl(wasm_u32x4_load16x4(p), 16)))
#define SPLAT(x) ((vf)wasm_f32x4_splat(x))
#define MADD(a, b, c) ((a) * (b) + (c))
#define ABOVE(floor, x) ((vf)wasm_f32x4_pmax((v128_t)(x), (v128_t)(floor))) /* x < floor ? floor : x */
#define BELOW(ceiling, x) ((vf)wasm_f32x4_pmin((v128_t)(x), (v128_t)(ceiling)))
#define FETCH(p) (void)(p)
#define HALVES 1
#define WINDOW_TILES 1
#define KERNELS ln_kernels_wasm
#define KERNELS_NAME "wasm"
#define KERNELS_NARROW NULL
#include "fast_kernels.h"
#endif
