/* The kernels over bytes for ARM's NEON: two products of bytes, as no weight is -128, have their sum in 16 bits. */
#include "fast_int8_set.h"

#if defined(__ARM_NEON) && defined(__GNUC__)

#include "fast_int8_arm.h"

#define LIFTS 0
#define WIDENS 0
typedef int8_t byte;
typedef int32x4_t va;
#define ZERO vdupq_n_s32(0)

#if defined(__aarch64__)
#define ROWS 2
#define PARTS 2
#define WHOLE4(s) vpaddq_s32((s)[0], (s)[1])

INLINE void START(int32x4_t *s, int32x4_t bias)
{
    s[0] = vzip1q_s32(bias, ZERO);
    s[1] = vzip2q_s32(bias, ZERO);
}

/* w: four channels, four k of each; x: the same four k, four times. */
INLINE void dot4(int32x4_t *s, int8x16_t w, int8x16_t x)
{
    s[0] = vpadalq_s16(s[0], vmull_s8(vget_low_s8(w), vget_low_s8(x)));
    s[1] = vpadalq_s16(s[1], vmull_high_s8(w, x));
}

/* The same with eight k: two products have their sum in 16 bits, and take no more instructions to add than one. */
INLINE void dot8(int32x4_t *s, int8x16_t w, int8x16_t x, int8x16_t v, int8x16_t u)
{
    s[0] = vpadalq_s16(s[0], vmlal_s8(vmull_s8(vget_low_s8(w), vget_low_s8(x)), vget_low_s8(v), vget_low_s8(u)));
    s[1] = vpadalq_s16(s[1], vmlal_high_s8(vmull_high_s8(w, x), v, u));
}

INLINE void STEP4(int32x4_t *s, const int8_t *w, size_t g, const int8_t *const *at, size_t k, const int R, const int V)
{
    (void)g;
    UNROLL
    for (int m = 0; m < R; m++) {
        const int8x16_t x = vreinterpretq_s8_s32(vld1q_dup_s32((const int32_t *)(const void *)(at[m] + k)));
        UNROLL
        for (int j = 0; j < V; j++) {
            dot4(s + 2 * (m * V + j), vld1q_s8(w + 16 * j), x);
            if (j & 1) IN_ORDER;
        }
    }
}

#define FOUR(x, i) vreinterpretq_s8_s32(vdupq_laneq_s32(x, i))
#define STEP_PAIR(s, w, g, x, i, R, V)                                                                               \
    do {                                                                                                             \
        int8x16_t first[MOST_ROWS], second[MOST_ROWS];                                                               \
        UNROLL                                                                                                       \
        for (int m = 0; m < (R); m++) first[m] = FOUR((x)[m], i), second[m] = FOUR((x)[m], (i) + 1);                 \
        UNROLL                                                                                                       \
        for (int j = 0; j < (V); j += 2) {                                                                           \
            const int more = j + 1 < (V) ? 16 : 0;                                                                   \
            const int8x16_t a = vld1q_s8((w) + 16 * j), c = vld1q_s8((w) + 16 * j + more);                           \
            const int8x16_t b = vld1q_s8((w) + (g) + 16 * j), d = vld1q_s8((w) + (g) + 16 * j + more);               \
            IN_ORDER;                                                                                                \
            UNROLL                                                                                                   \
            for (int m = 0; m < (R); m++) {                                                                          \
                dot8((s) + 2 * (m * (V) + j), a, first[m], b, second[m]);                                            \
                if (m & 1) IN_ORDER;                                                                                 \
            }                                                                                                        \
            UNROLL                                                                                                   \
            for (int m = 0; more && m < (R); m++) {                                                                  \
                dot8((s) + 2 * (m * (V) + j + 1), c, first[m], d, second[m]);                                        \
                if (m & 1) IN_ORDER;                                                                                 \
            }                                                                                                        \
        }                                                                                                            \
    } while (0)

INLINE void STEP8(int32x4_t *s, const int8_t *w, size_t g, const int8_t *const *at, size_t k, const int R, const int V)
{
    int32x4_t x[MOST_ROWS];
    UNROLL
    for (int m = 0; m < R; m++) x[m] = vreinterpretq_s32_s8(vcombine_s8(vld1_s8(at[m] + k), vdup_n_s8(0)));
    STEP_PAIR(s, w, g, x, 0, R, V);
}

INLINE void STEP16(int32x4_t *s, const int8_t *w, size_t g, const int8_t *const *at, size_t k, const int R, const int V)
{
    int32x4_t x[MOST_ROWS];
    UNROLL
    for (int m = 0; m < R; m++) x[m] = vreinterpretq_s32_s8(vld1q_s8(at[m] + k));
    STEP_PAIR(s, w, g, x, 0, R, V);
    STEP_PAIR(s, w + 2 * g, g, x, 2, R, V);
}
#else
#define OUTS 2 /* each in two parts */
#define VECTORS 4
#define WHOLE(a, b) \
    vcombine_s32(vpadd_s32(vget_low_s32(a), vget_high_s32(a)), vpadd_s32(vget_low_s32(b), vget_high_s32(b)))
typedef int8x8_t vx;
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
#endif

#define PRODUCTS 10
#define WINO_PRODUCTS 8
#define WIDE 8
#define WIDE_LOAD(p) vmovl_s8(vld1_s8(p))
#define SUMS 4
#define PUT_SUMS(p, s) vst1q_s32(p, s) /* gcc moves a vector by way of two other registers */
#if defined(__aarch64__)
#define WINO_MOST 4
#define WINO_TILES(T) T(1) T(4)
#define STEP_CHANNELS 8
#define WINO_ORDER IN_ORDER
typedef int16x8_t inputs; /* STEP_CHANNELS of them */
#define INPUTS(p) vld1q_s16(p)
#define ADD_LOW(s, w, x, c) vmlal_laneq_s16(s, vget_low_s16(w), x, c)
#define ADD_HIGH(s, w, x, c) vmlal_high_laneq_s16(s, w, x, c)
#else
#define WINO_MOST 2
#define WINO_TILES(T) T(2)
#define STEP_CHANNELS 4
#define WINO_ORDER (void)0
typedef int16x4_t inputs;
#define INPUTS(p) vld1_s16(p)
#define ADD_LOW(s, w, x, c) vmlal_lane_s16(s, vget_low_s16(w), x, c)
#define ADD_HIGH(s, w, x, c) vmlal_lane_s16(s, vget_high_s16(w), x, c)
#endif

/* Of one channel, whose 16 weights are at w, lane c of each row's inputs. */
#define ADD_LANE(c)                                                                      \
    do {                                                                                 \
        const int16x8_t low = vld1q_s16(w + 16 * (c)), high = vld1q_s16(w + 16 * (c) + 8); \
        UNROLL                                                                           \
        for (int m = 0; m < R; m++) {                                                    \
            s[4 * m] = ADD_LOW(s[4 * m], low, a[m], c);                                  \
            s[4 * m + 1] = ADD_HIGH(s[4 * m + 1], low, a[m], c);                         \
            s[4 * m + 2] = ADD_LOW(s[4 * m + 2], high, a[m], c);                         \
            s[4 * m + 3] = ADD_HIGH(s[4 * m + 3], high, a[m], c);                        \
        }                                                                                \
        WINO_ORDER;                                                                      \
    } while (0)

/* R rows, 16 numbers apart: some channels' products are added to their sums. */
INLINE void step_sums(int32x4_t *s, const int16_t *w, const int16_t *x, const int R)
{
    inputs a[WINO_MOST];
    UNROLL
    for (int m = 0; m < R; m++) a[m] = INPUTS(x + 16 * m);
    ADD_LANE(0);
    ADD_LANE(1);
    ADD_LANE(2);
    ADD_LANE(3);
#if STEP_CHANNELS == 8
    ADD_LANE(4);
    ADD_LANE(5);
    ADD_LANE(6);
    ADD_LANE(7);
#endif
}

#define INT8 ln_int8_neon
#define INT8_NAME "neon"
#include "fast_int8_kernels.h"
#endif
