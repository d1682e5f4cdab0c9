/* The kernels over bytes for 64-bit ARM with the dot product (from Cortex-A55 and A76 on; a Raspberry Pi 5 has it): 16
 * products and their sums an instruction. */
#include "fast_int8_set.h"

#if defined(__aarch64__) && defined(__GNUC__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif

#include "fast_int8_arm.h"

#define OUTS 4
#define LIFTS 0
#define WIDENS 0
#define VECTORS 4
#define TILE_PANELS 1
#define TILES8(T) T(1, 4) T(2, 4) T(3, 4) T(4, 4) T(5, 4) T(6, 4)
typedef int8_t byte;
typedef int32x4_t va;
typedef int8x16_t vx;
#define ZERO vdupq_n_s32(0)
#define SPLAT4(p) vreinterpretq_s8_s32(vdupq_n_s32(word_at(p)))
#define DOT(s, w, x) vdotq_s32(s, vld1q_s8(w), x)
#define FOLD(to, s, v)                                            \
    do {                                                          \
        for (int f = 0; f < (v); f++) vst1q_s32((to) + f * 4, (s)[f]); \
    } while (0)

INLINE int32_t word_at(const int8_t *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

#define PRODUCTS 32
#define INT8 ln_int8_dot
#define INT8_NAME "dot"
#include "fast_int8_kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
