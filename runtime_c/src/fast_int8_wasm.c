/* The kernels over bytes for WebAssembly, where the module is built with -msimd128: products of 16-bit numbers, whose sums
 * by two are exact. */
#include "fast_int8_set.h"

#if defined(__wasm_simd128__)
#include <wasm_simd128.h>

#define OUTS 2 /* each in two parts */
#define LIFTS 0
#define WIDENS 1
#define VECTORS 4
typedef int16_t byte;
typedef v128_t va, vx;
#define ZERO wasm_i32x4_splat(0)
#define SPLAT4(p) wasm_v128_load64_splat(p)
#define DOT(s, w, x) wasm_i32x4_add(s, wasm_i32x4_dot_i16x8(x, wasm_v128_load(w)))
#define FOLD(to, s, v)                                                                                     \
    do {                                                                                                   \
        for (int f = 0; f < (v); f += 2) wasm_v128_store((to) + f * 2, whole((s)[f], (s)[f + 1]));         \
    } while (0)

INLINE v128_t whole(v128_t a, v128_t b) /* a0+a1, a2+a3, b0+b1, b2+b3 */
{
    return wasm_i32x4_add(wasm_i32x4_shuffle(a, b, 0, 2, 4, 6), wasm_i32x4_shuffle(a, b, 1, 3, 5, 7));
}

typedef struct pv { /* biases and multipliers of 16 channels */
    v128_t bias[4], scale[4];
} pv;

INLINE pv put_load(const uint8_t *bias, const uint8_t *scale)
{
    pv p;
    for (int i = 0; i < 4; i++) {
        p.bias[i] = wasm_v128_load(bias + 16 * i);
        p.scale[i] = wasm_v128_load(scale + 16 * i);
    }
    return p;
}

/* 2^shift (z + requant(a, m)) and a rest that the shift drops */
INLINE v128_t requant(v128_t a, v128_t m, ln_quantum q)
{
    const v128_t half = wasm_i64x2_splat((2 * (int64_t)q.z + 1) * ((int64_t)1 << (30 + q.shift)));
    const v128_t low = wasm_i64x2_shl(wasm_i64x2_add(wasm_i64x2_extmul_low_i32x4(a, m), half), 1);
    const v128_t high = wasm_i64x2_shl(wasm_i64x2_add(wasm_i64x2_extmul_high_i32x4(a, m), half), 1);
    return wasm_i32x4_shuffle(low, high, 1, 3, 5, 7);
}

INLINE void store_held(const v128_t *r, uint32_t shift, ln_quantum q, int8_t *y)
{
    const v128_t low = wasm_i16x8_shr(wasm_i16x8_narrow_i32x4(r[0], r[1]), shift);
    const v128_t b = wasm_i8x16_narrow_i16x8(low, wasm_i16x8_shr(wasm_i16x8_narrow_i32x4(r[2], r[3]), shift));
    wasm_v128_store(y, wasm_i8x16_min(wasm_i8x16_max(b, wasm_i8x16_splat((int8_t)q.lo)), wasm_i8x16_splat((int8_t)q.hi)));
}

/* y[j] = clamp(z + requant(s[j] + bias[j], scale[j]), lo, hi) for 16 channels */
INLINE void put16(const int32_t *s, const pv *p, ln_quantum q, int8_t *y)
{
    v128_t r[4];
    for (int i = 0; i < 4; i++) r[i] = requant(wasm_i32x4_add(wasm_v128_load(s + 4 * i), p->bias[i]), p->scale[i], q);
    store_held(r, q.shift, q, y);
}

/* Bytes of two taps side by side, as 16-bit numbers, for each of 16 channels. */
typedef struct dw_pair {
    v128_t part[4];
} dw_pair;

typedef dw_pair dw_sums;
#define DW_ZERO ((dw_sums){{ZERO, ZERO, ZERO, ZERO}})

INLINE v128_t pixel(const void *p)
{
    return wasm_v128_load(p);
}

INLINE dw_pair dw_side_by_side(v128_t a, v128_t b)
{
    const v128_t low = wasm_i8x16_shuffle(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const v128_t high = wasm_i8x16_shuffle(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return (dw_pair){{wasm_i16x8_extend_low_i8x16(low), wasm_i16x8_extend_high_i8x16(low),
                      wasm_i16x8_extend_low_i8x16(high), wasm_i16x8_extend_high_i8x16(high)}};
}

INLINE dw_sums dw_dot(dw_sums s, dw_pair x, dw_pair w)
{
    for (int i = 0; i < 4; i++) s.part[i] = wasm_i32x4_add(s.part[i], wasm_i32x4_dot_i16x8(x.part[i], w.part[i]));
    return s;
}

/* y[j] = clamp(z + ((s[j] + c) >> shift), lo, hi) for 16 sums */
INLINE void shift16(dw_sums s, int32_t c, ln_quantum q, int8_t *y)
{
    const v128_t rest = wasm_i32x4_splat(c), z = wasm_i32x4_splat(q.z);
    for (int i = 0; i < 4; i++) s.part[i] = wasm_i32x4_add(wasm_i32x4_shr(wasm_i32x4_add(s.part[i], rest), q.shift), z);
    store_held(s.part, 0, q, y);
}

INLINE dw_pair dw_twice(int32_t two) /* the same two for every channel */
{
    const v128_t v = wasm_i32x4_splat(two);
    return (dw_pair){{v, v, v, v}};
}

/* ln_rounded of x[i] inverse, 16 times: a NaN becomes 0 when it is converted */
INLINE dw_sums dw_rounded(const float *x, float inverse)
{
    const v128_t sign = wasm_f32x4_splat(-0.0f), half = wasm_f32x4_splat(0.5f), most = wasm_f32x4_splat(512.0f);
    dw_sums s;
    for (int i = 0; i < 4; i++) {
        const v128_t product = wasm_f32x4_mul(wasm_v128_load(x + 4 * i), wasm_f32x4_splat(inverse));
        const v128_t t = wasm_f32x4_min(most, wasm_f32x4_max(wasm_f32x4_neg(most), product));
        s.part[i] = wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_add(t, wasm_v128_or(wasm_v128_and(t, sign), half)));
    }
    return s;
}

INLINE dw_sums dw_times128(dw_sums s)
{
    for (int i = 0; i < 4; i++) s.part[i] = wasm_i32x4_shl(s.part[i], 7);
    return s;
}

#define PRODUCTS 8
#define DW_PIXEL v128_t
#define DW_NONE ZERO
#define INT8 ln_int8_wasm
#define INT8_NAME "wasm"
#include "fast_int8_kernels.h"
#endif
