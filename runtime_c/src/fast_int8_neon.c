/* The kernels over bytes for ARM's NEON: two products of bytes, as no weight is -128, have their sum in 16 bits. */
#include "fast_int8_set.h"

#if defined(__ARM_NEON) && defined(__GNUC__)

#include "fast_int8_arm.h"

#define OUTS 2 /* each in two parts */
#define LIFTS 0
#define WIDENS 0
#define VECTORS 4
#define TILE_PANELS 1
#if defined(__aarch64__)
#define TILES8(T) T(1, 4) T(2, 4) T(3, 4) T(4, 4)
#define WHOLE(a, b) vpaddq_s32(a, b)
#else
#define TILES8(T) T(1, 4) T(2, 4)
#define WHOLE(a, b) \
    vcombine_s32(vpadd_s32(vget_low_s32(a), vget_high_s32(a)), vpadd_s32(vget_low_s32(b), vget_high_s32(b)))
#endif
typedef int8_t byte;
typedef int32x4_t va;
typedef int8x8_t vx;
#define ZERO vdupq_n_s32(0)
#define SPLAT4(p) vreinterpret_s8_s32(vdup_n_s32(word_at(p)))
#define DOT(s, w, x) vpadalq_s16(s, vmull_s8(vld1_s8(w), x))
#define DOT2(s, w, x, v, y) vpadalq_s16(s, vmlal_s8(vmull_s8(vld1_s8(w), x), vld1_s8(v), y))
#define FOLD(to, s, v)                                                                        \
    do {                                                                                      \
        for (int f = 0; f < (v); f += 2) vst1q_s32((to) + f * 2, WHOLE((s)[f], (s)[f + 1]));   \
    } while (0)

INLINE int32_t word_at(const int8_t *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

#define PRODUCTS 10
#define WINO_PRODUCTS 8
#define WIDE 8
#define WIDE_LOAD(p) vmovl_s8(vld1_s8(p))
#define SUMS 4
#if defined(__aarch64__)
#define WINO_MOST 4
#define WINO_TILES(T) T(1) T(4)
#else
#define WINO_MOST 2
#define WINO_TILES(T) T(2)
#endif
#define STEP_CHANNELS 4

/* Of one channel, whose 16 weights are at w, lane c of each row's inputs. */
#define ADD_LANE(c)                                                                                             \
    do {                                                                                                        \
        const int16x8_t low = vld1q_s16(w + 16 * (c)), high = vld1q_s16(w + 16 * (c) + 8);                      \
        UNROLL                                                                                                  \
        for (int m = 0; m < R; m++) {                                                                           \
            s[4 * m] = vmlal_lane_s16(s[4 * m], vget_low_s16(low), a[m], c);                                    \
            s[4 * m + 1] = vmlal_lane_s16(s[4 * m + 1], vget_high_s16(low), a[m], c);                           \
            s[4 * m + 2] = vmlal_lane_s16(s[4 * m + 2], vget_low_s16(high), a[m], c);                           \
            s[4 * m + 3] = vmlal_lane_s16(s[4 * m + 3], vget_high_s16(high), a[m], c);                          \
        }                                                                                                       \
    } while (0)

/* R rows, 16 numbers apart: four channels' products are added to their sums. */
INLINE void step_sums(int32x4_t *s, const int16_t *w, const int16_t *x, const int R)
{
    int16x4_t a[WINO_MOST];
    UNROLL
    for (int m = 0; m < R; m++) a[m] = vld1_s16(x + 16 * m);
    ADD_LANE(0);
    ADD_LANE(1);
    ADD_LANE(2);
    ADD_LANE(3);
}

#define INT8 ln_int8_neon
#define INT8_NAME "neon"
#include "fast_int8_kernels.h"
#endif
