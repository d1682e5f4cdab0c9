/* What the two sets of kernels over bytes for ARM share; included before fast_int8_kernels.h. */
#include <arm_neon.h>

typedef struct pv { /* biases and multipliers of 16 channels */
    int32x4_t bias[4], scale[4];
} pv;

INLINE pv put_load(const uint8_t *bias, const uint8_t *scale)
{
    pv p;
    for (int i = 0; i < 4; i++) {
        p.bias[i] = vreinterpretq_s32_u8(vld1q_u8(bias + 16 * i));
        p.scale[i] = vreinterpretq_s32_u8(vld1q_u8(scale + 16 * i));
    }
    return p;
}

INLINE void store_held(const int32x4_t *v, ln_quantum q, int8_t *y)
{
    const int16x8_t low = vcombine_s16(vqmovn_s32(v[0]), vqmovn_s32(v[1]));
    const int16x8_t high = vcombine_s16(vqmovn_s32(v[2]), vqmovn_s32(v[3]));
    const int8x16_t b = vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
    vst1q_s8(y, vminq_s8(vmaxq_s8(b, vdupq_n_s8((int8_t)q.lo)), vdupq_n_s8((int8_t)q.hi)));
}

/* y[j] = clamp(z + requant(s[j] + bias[j], scale[j]), lo, hi) for 16 channels; requant is one instruction */
INLINE void put16(const int32_t *s, const pv *p, ln_quantum q, int8_t *y)
{
    const int32x4_t z = vdupq_n_s32(q.z);
    int32x4_t r[4];
    for (int i = 0; i < 4; i++)
        r[i] = vaddq_s32(vqrdmulhq_s32(vaddq_s32(vld1q_s32(s + 4 * i), p->bias[i]), p->scale[i]), z);
    store_held(r, q, y);
}

/* Two taps of 16 channels. */
typedef struct dw_pair {
    int8x16_t a, b;
} dw_pair;

typedef struct dw_sums {
    int32x4_t part[4];
} dw_sums;

#define DW_ZERO ((dw_sums){{vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)}})

INLINE int8x16_t pixel(const void *p)
{
    return vld1q_s8(p);
}

INLINE dw_pair dw_side_by_side(int8x16_t a, int8x16_t b)
{
    return (dw_pair){a, b};
}

INLINE dw_sums dw_dot(dw_sums s, dw_pair x, dw_pair w) /* two products of bytes, as no weight is -128, fit 16 bits */
{
    int16x8_t low = vmull_s8(vget_low_s8(x.a), vget_low_s8(w.a));
    int16x8_t high = vmull_s8(vget_high_s8(x.a), vget_high_s8(w.a));
    low = vmlal_s8(low, vget_low_s8(x.b), vget_low_s8(w.b));
    high = vmlal_s8(high, vget_high_s8(x.b), vget_high_s8(w.b));
    s.part[0] = vaddw_s16(s.part[0], vget_low_s16(low));
    s.part[1] = vaddw_s16(s.part[1], vget_high_s16(low));
    s.part[2] = vaddw_s16(s.part[2], vget_low_s16(high));
    s.part[3] = vaddw_s16(s.part[3], vget_high_s16(high));
    return s;
}

INLINE void dw_store(int32_t *to, dw_sums s)
{
    for (int i = 0; i < 4; i++) vst1q_s32(to + 4 * i, s.part[i]);
}

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
INLINE void shift16(dw_sums s, int32_t c, uint32_t shift, ln_quantum q, int8_t *y)
{
    const int32x4_t rest = vdupq_n_s32(c), z = vdupq_n_s32(q.z), by = vdupq_n_s32(-(int32_t)shift);
    for (int i = 0; i < 4; i++) s.part[i] = vaddq_s32(vshlq_s32(vaddq_s32(s.part[i], rest), by), z);
    store_held(s.part, q, y);
}

#define DW_PIXEL int8x16_t
#define DW_NONE vdupq_n_s8(0)
