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

/* y[j] = clamp(z + requant(s[j] + bias[j], scale[j]), lo, hi) for 16 channels; requant is one instruction */
INLINE void put16(const int32_t *s, const pv *p, ln_quantum q, int8_t *y)
{
    const int32x4_t z = vdupq_n_s32(q.z);
    int16x4_t r[4];
    for (int i = 0; i < 4; i++)
        r[i] = vqmovn_s32(vaddq_s32(vqrdmulhq_s32(vaddq_s32(vld1q_s32(s + 4 * i), p->bias[i]), p->scale[i]), z));
    const int8x16_t b = vcombine_s8(vqmovn_s16(vcombine_s16(r[0], r[1])), vqmovn_s16(vcombine_s16(r[2], r[3])));
    vst1q_s8(y, vminq_s8(vmaxq_s8(b, vdupq_n_s8((int8_t)q.lo)), vdupq_n_s8((int8_t)q.hi)));
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

#define DW_PIXEL int8x16_t
#define DW_NONE vdupq_n_s8(0)
