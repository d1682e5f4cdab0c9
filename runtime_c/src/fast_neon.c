/* The kernels for ARM: NEON of 64-bit processors, or of 32-bit ones where the compiler is told that it is there. */
#include "fast.h"

#if defined(__ARM_NEON) && defined(__GNUC__)
#include <arm_neon.h>

#include "ln_vec8.h"

#define LANES 4
#define COLUMNS 2
#if defined(__aarch64__)
#define ROWS 8 /* 32 registers */
#define TILES(T, V) T(1, V) T(2, V) T(3, V) T(4, V) T(5, V) T(6, V) T(7, V) T(8, V)
#define MADD(a, b, c) vfmaq_f32(c, a, b)
#define LOADH(p) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))
#else
#define ROWS 4 /* 16 */
#define TILES(T, V) T(1, V) T(2, V) T(3, V) T(4, V)
#define MADD(a, b, c) vmlaq_f32(c, a, b)
#define LOADH(p) ((vf)ln_upper_f16((ln_bits4)vshll_n_u16(vld1_u16(p), 16)))
#endif
#define NARROW_ROWS ROWS
#define NARROW_TILES TILES
typedef float32x4_t vf;
typedef int32x4_t vi;
#define LOAD(p) vld1q_f32(p)
#define STORE(p, v) vst1q_f32(p, v)
#define SPLAT(x) vdupq_n_f32(x)
#define ABOVE(floor, x) either((x) < (floor), floor, x) /* NEON's own maximum makes the sign of zero its own */
#define BELOW(ceiling, x) either((x) > (ceiling), ceiling, x)
#define FETCH(p) (void)(p)
#define HALVES 1
#define WINDOW_TILES (ROWS == 8) /* they need more than 16 registers */
#define KERNELS ln_kernels_neon
#define KERNELS_NAME "neon"
#define KERNELS_NARROW NULL
#include "fast_kernels.h"
#endif
