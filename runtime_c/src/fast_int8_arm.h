/* What the two sets of kernels over bytes for ARM share; included before fast_int8_kernels.h. */
#include <arm_neon.h>

#if defined(__aarch64__)
#define OWN_PRODUCT "fast_int8_arm_product.h"

enum { MOST_ROWS = 4 };
#endif

typedef struct pv { /* biases and multipliers of 16 channels */
    int32x4_t bias[4], scale[4];
} pv;

INLINE pv put_load(const uint8_t *bias, const uint8_t *scale)
{
    pv p;
    UNROLL
    for (int i = 0; i < 4; i++) {
        p.bias[i] = vreinterpretq_s32_u8(vld1q_u8(bias + 16 * i));
        p.scale[i] = vreinterpretq_s32_u8(vld1q_u8(scale + 16 * i));
    }
    return p;
}

#if defined(__aarch64__)
#define MULL_HIGH(a, b) vmull_high_s8(a, b)
#define MLAL_HIGH(s, a, b) vmlal_high_s8(s, a, b)
#define ADDW_HIGH(s, a) vaddw_high_s16(s, a)
#define JOINED16(a, b) vqmovn_high_s32(vqmovn_s32(a), b)
#define JOINED8(a, b) vqmovn_high_s16(vqmovn_s16(a), b)
#else
#define MULL_HIGH(a, b) vmull_s8(vget_high_s8(a), vget_high_s8(b))
#define MLAL_HIGH(s, a, b) vmlal_s8(s, vget_high_s8(a), vget_high_s8(b))
#define ADDW_HIGH(s, a) vaddw_s16(s, vget_high_s16(a))
#define JOINED16(a, b) vcombine_s16(vqmovn_s32(a), vqmovn_s32(b))
#define JOINED8(a, b) vcombine_s8(vqmovn_s16(a), vqmovn_s16(b))
#endif

/* gcc multiplies ahead of what it has registers for, and moves sums to memory and back, where nothing holds it back. */
#define IN_ORDER __asm__ volatile("")

/* An ln_quantum for all lanes. */
typedef struct limits {
    int16x8_t z;
    int8x16_t lo, hi;
    uint32_t shift;
} limits;

INLINE limits limits_of(ln_quantum q)
{
    return (limits){vdupq_n_s16((int16_t)q.z), vdupq_n_s8((int8_t)q.lo), vdupq_n_s8((int8_t)q.hi), q.shift};
}

/* clamp(z + v, lo, hi): z is added to 16 bits, where what saturates is beyond lo or hi with or without it. */
INLINE int8x8_t held8(int32x4_t a, int32x4_t b, limits q)
{
    const int8x8_t v = vqmovn_s16(vqaddq_s16(JOINED16(a, b), q.z));
    return vmin_s8(vmax_s8(v, vget_low_s8(q.lo)), vget_low_s8(q.hi));
}

INLINE void store_held(const int32x4_t *v, limits q, int8_t *y)
{
    const int8x16_t b = JOINED8(vqaddq_s16(JOINED16(v[0], v[1]), q.z), vqaddq_s16(JOINED16(v[2], v[3]), q.z));
    vst1q_s8(y, vminq_s8(vmaxq_s8(b, q.lo), q.hi));
}

INLINE void store_some(int8_t *y, int8x8_t b, uint32_t live) /* fewer than 8 */
{
    int8_t kept[8];
    vst1_s8(kept, b);
    for (uint32_t j = 0; j < live; j++) y[j] = kept[j];
}

/* requant(s[i], scale[i]) of n vectors. Without a shift that is one instruction; with one, the product is cut to its upper half
 * and the rest rounded as it is shifted. */
INLINE void requant(int32x4_t *s, const int32x4_t *scale, limits q, const int n)
{
    if (q.shift) {
        const int32x4_t by = vdupq_n_s32(-(int32_t)q.shift);
        UNROLL
        for (int i = 0; i < n; i++) s[i] = vrshlq_s32(vqdmulhq_s32(s[i], scale[i]), by);
    } else {
        UNROLL
        for (int i = 0; i < n; i++) s[i] = vqrdmulhq_s32(s[i], scale[i]);
    }
}

/* y[j] = clamp(z + requant(s[j] + bias[j], scale[j]), lo, hi) for 16 channels */
INLINE void put16(const int32_t *s, const pv *p, ln_quantum q, int8_t *y)
{
    int32x4_t r[4];
    UNROLL
    for (int i = 0; i < 4; i++) r[i] = vaddq_s32(vld1q_s32(s + 4 * i), p->bias[i]);
    requant(r, p->scale, limits_of(q), 4);
    store_held(r, limits_of(q), y);
}

/* s[j] = max(s[j], other[j]) of 16: of vectors of its own gcc compares number by number. */
#define OWN_LARGER
INLINE void larger16(int32_t *s, const int32_t *other)
{
    UNROLL
    for (int i = 0; i < 16; i += 4) vst1q_s32(s + i, vmaxq_s32(vld1q_s32(s + i), vld1q_s32(other + i)));
}

typedef struct dw_sums {
    int32x4_t part[4];
} dw_sums;

INLINE int8x16_t pixel(const void *p)
{
    return vld1q_s8(p);
}

#define OWN_DEPTHWISE
#define OTHER_DEPTHWISE "fast_int8_arm_depthwise.h"

/* 16 of a m1 + b m2, factors of 16 bits */
INLINE dw_sums two_products(int8x16_t a, int8x16_t b, int16_t m1, int16_t m2)
{
    const int16x8_t a0 = vmovl_s8(vget_low_s8(a)), a1 = vmovl_s8(vget_high_s8(a));
    const int16x8_t b0 = vmovl_s8(vget_low_s8(b)), b1 = vmovl_s8(vget_high_s8(b));
    dw_sums s;
    s.part[0] = vmlal_n_s16(vmull_n_s16(vget_low_s16(a0), m1), vget_low_s16(b0), m2);
    s.part[1] = vmlal_n_s16(vmull_n_s16(vget_high_s16(a0), m1), vget_high_s16(b0), m2);
    s.part[2] = vmlal_n_s16(vmull_n_s16(vget_low_s16(a1), m1), vget_low_s16(b1), m2);
    s.part[3] = vmlal_n_s16(vmull_n_s16(vget_high_s16(a1), m1), vget_high_s16(b1), m2);
    return s;
}
#define TWO_PRODUCTS

/* ln_rounded of x[i] inverse, 16 times: a NaN becomes 0 when it is converted */
INLINE dw_sums dw_rounded(const float *x, float inverse)
{
    const float32x4_t half = vdupq_n_f32(0.5f), most = vdupq_n_f32(512.0f);
    dw_sums s;
    UNROLL
    for (int i = 0; i < 4; i++) {
        const float32x4_t product = vmulq_n_f32(vld1q_f32(x + 4 * i), inverse);
        const float32x4_t t = vminq_f32(most, vmaxq_f32(vnegq_f32(most), product));
        s.part[i] = vcvtq_s32_f32(vaddq_f32(t, vbslq_f32(vdupq_n_u32(0x80000000u), t, half)));
    }
    return s;
}

INLINE int32x4_t sum_of(int16x4_t a, int16x4_t b, int32_t m1, int32_t m2)
{
    return vmlaq_n_s32(vmulq_n_s32(vmovl_s16(a), m1), vmovl_s16(b), m2);
}

/* The same with any factors. */
INLINE dw_sums two_large_products(int8x16_t a, int8x16_t b, int32_t m1, int32_t m2)
{
    const int16x8_t a0 = vmovl_s8(vget_low_s8(a)), a1 = vmovl_s8(vget_high_s8(a));
    const int16x8_t b0 = vmovl_s8(vget_low_s8(b)), b1 = vmovl_s8(vget_high_s8(b));
    dw_sums s;
    s.part[0] = sum_of(vget_low_s16(a0), vget_low_s16(b0), m1, m2);
    s.part[1] = sum_of(vget_high_s16(a0), vget_high_s16(b0), m1, m2);
    s.part[2] = sum_of(vget_low_s16(a1), vget_low_s16(b1), m1, m2);
    s.part[3] = sum_of(vget_high_s16(a1), vget_high_s16(b1), m1, m2);
    return s;
}

/* y[j] = clamp(z + ((s[j] + c) >> shift), lo, hi) for 16 sums */
INLINE void shift16(dw_sums s, int32_t c, ln_quantum q, int8_t *y)
{
    const int32x4_t rest = vdupq_n_s32(c), by = vdupq_n_s32(-(int32_t)q.shift);
    UNROLL
    for (int i = 0; i < 4; i++) s.part[i] = vshlq_s32(vaddq_s32(s.part[i], rest), by);
    store_held(s.part, limits_of(q), y);
}
