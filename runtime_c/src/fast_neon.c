/* The kernels for ARM: NEON of 64-bit processors, or of 32-bit ones where the compiler is told that it is there. */
#include "fast.h"

#if defined(__ARM_NEON) && defined(__GNUC__)
#include <arm_neon.h>

#include "ln_vec8.h"

#define LANES 4
#if defined(__aarch64__)
#define BY_LANE
#define COLUMNS 4 /* 32 registers: 20 sums, a vector of each row, and of a panel's weights */
#define ROWS 5
#define PAIR_ROWS 8
#define WINDOW_TILES 2
#define TILES(T, V) T(1, V) T(2, V) T(3, V) T(4, V) T(5, V)
#define PAIR_TILES(T, V) TILES(T, V) T(6, V) T(7, V) T(8, V)
#define MADD(a, b, c) vfmaq_f32(c, a, b)
#define LOADH(p) vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)))
#else
#define COLUMNS 2 /* 16 */
#define ROWS 4
#define WINDOW_TILES 0 /* they need more than 16 registers */
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
#define ABOVE(floor, x) vmaxq_f32(x, floor) /* a NaN stays; of two zeros it is the positive one */
#define BELOW(ceiling, x) vminq_f32(x, ceiling)
#define HALVES 1
#define FINISHING 0
#define KERNELS ln_kernels_neon
#define KERNELS_NAME "neon"
#define KERNELS_NARROW NULL
#include "fast_kernels.h"
#endif
