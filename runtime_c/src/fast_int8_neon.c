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

#define INT8 ln_int8_neon
#define INT8_NAME "neon"
#include "fast_int8_kernels.h"
#endif
