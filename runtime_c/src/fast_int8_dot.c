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

#define LIFTS 0
#define WIDENS 0
typedef int8_t byte;
typedef int32x4_t va;
#define ZERO vdupq_n_s32(0)

#define ROWS 4
#define PARTS 1
#define START(s, bias) *(s) = (bias)
#define WHOLE4(s) (*(s))

#define STEP(s, w, x, lane, R, V)                                                                                      \
    do {                                                                                                               \
        UNROLL                                                                                                         \
        for (int j = 0; j < (V); j++) {                                                                                \
            const int8x16_t four = vld1q_s8((w) + 16 * j);                                                             \
            UNROLL                                                                                                     \
            for (int m = 0; m < (R); m++) (s)[m * (V) + j] = vdotq_laneq_s32((s)[m * (V) + j], four, (x)[m], lane);    \
        }                                                                                                              \
        IN_ORDER;                                                                                                      \
    } while (0)

INLINE void STEP4(int32x4_t *s, const int8_t *w, size_t g, const int8_t *const *at, size_t k, const int R, const int V)
{
    int8x16_t x[MOST_ROWS];
    (void)g;
    UNROLL
    for (int m = 0; m < R; m++) x[m] = vreinterpretq_s8_s32(vld1q_dup_s32((const int32_t *)(const void *)(at[m] + k)));
    STEP(s, w, x, 0, R, V);
}

INLINE void STEP8(int32x4_t *s, const int8_t *w, size_t g, const int8_t *const *at, size_t k, const int R, const int V)
{
    int8x16_t x[MOST_ROWS];
    UNROLL
    for (int m = 0; m < R; m++) x[m] = vcombine_s8(vld1_s8(at[m] + k), vdup_n_s8(0));
    STEP(s, w, x, 0, R, V);
    STEP(s, w + g, x, 1, R, V);
}

INLINE void STEP16(int32x4_t *s, const int8_t *w, size_t g, const int8_t *const *at, size_t k, const int R, const int V)
{
    int8x16_t x[MOST_ROWS];
    UNROLL
    for (int m = 0; m < R; m++) x[m] = vld1q_s8(at[m] + k);
    STEP(s, w, x, 0, R, V);
    STEP(s, w + g, x, 1, R, V);
    STEP(s, w + 2 * g, x, 2, R, V);
    STEP(s, w + 3 * g, x, 3, R, V);
}

#define PRODUCTS 32
#define INT8 ln_int8_dot
#define INT8_NAME "dot"
#include "fast_int8_kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
