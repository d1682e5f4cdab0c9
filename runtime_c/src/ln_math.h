/* The mathematics of the core: exponentials and their kin, the activations, half precision. No libm.
 *
 * An error is the largest distance to the true value over every float32 of the stated range, in ulps of the result
 * (1 ulp: the step from one float32 to the next there; 0.5 would be perfect rounding). tests/test_c_math.py measures
 * it. It holds where float arithmetic is IEEE and a*b+c is two roundings (-ffp-contract=off); a compiler that fuses
 * them gives other last bits. NaN gives NaN. No function has a branch that depends on its argument, so that
 * compilers can turn a loop over an array into vector code; none converts a float to an integer that cannot hold it.
 *
 * The polynomials are minimax fits, their coefficients rounded to float32 one after another, lowest degree first,
 * each time refitting the rest. */
#ifndef LN_MATH_H
#define LN_MATH_H

#include <stddef.h>
#include <stdint.h>

typedef union ln_word { /* a float32 and its bits */
    float value;
    uint32_t bits;
} ln_word;

static inline float ln_from_bits(uint32_t bits)
{
    ln_word w;
    w.bits = bits;
    return w.value;
}

static inline uint32_t ln_to_bits(float x)
{
    ln_word w;
    w.value = x;
    return w.bits;
}

static inline float ln_absf(float x)
{
    return ln_from_bits(ln_to_bits(x) & 0x7FFFFFFFu);
}

static inline float ln_copysignf(float x, float sign)
{
    return ln_from_bits((ln_to_bits(x) & 0x7FFFFFFFu) | (ln_to_bits(sign) & 0x80000000u));
}

/* condition ? x : y, with both worked out: compilers leave a plain ?: as a jump when one side is an expression. */
static inline float ln_select(int condition, float x, float y)
{
    const uint32_t mask = 0u - (uint32_t)condition;
    return ln_from_bits((ln_to_bits(x) & mask) | (ln_to_bits(y) & ~mask));
}

/* Larger and smaller of two. A NaN in x stays. */
static inline float ln_maxf(float x, float floor)
{
    return x < floor ? floor : x;
}

static inline float ln_minf(float x, float ceiling)
{
    return x > ceiling ? ceiling : x;
}

/* The larger of two, of which each may be NaN, and then it is the answer. */
static inline float ln_largerf(float a, float b)
{
    return ln_select((b > a) | (b != b), b, a);
}

/* ln_expf   e^x.   Error below 1.09 ulp for every x, denormal results included; 0 below -103.97, inf above 88.72.
 * x = n ln2 + r with whole n, |r| <= ln2/2:  e^x = 2^n (1 + r + r^2 P(r)).  ln2 is split in two so that n * LN2_HI
 * is exact; 2^n is applied in two halves, each a normal number also where the result is not. */
static inline float ln_expf(float x)
{
    const float LOG2E = 1.44269504f, LN2_HI = 0.693145752f, LN2_LO = 1.42860682e-6f;
    float c = ln_select(x > -104.0f, x, -104.0f); /* NaN becomes -104, to be put back at the end */
    c = ln_select(c < 89.0f, c, 89.0f);
    const int32_t n = (int32_t)(c * LOG2E + ln_copysignf(0.5f, c)); /* -150 to 128 */
    const float r = (c - (float)n * LN2_HI) - (float)n * LN2_LO;

    float p = 0.00138477189f;
    p = p * r + 0.00836782064f;
    p = p * r + 0.0416682251f;
    p = p * r + 0.166665226f;
    p = p * r + 0.49999994f;
    p = 1.0f + (r + r * r * p);

    const uint32_t biased = (uint32_t)(n + 256), half = biased >> 1;
    const float y = p * ln_from_bits((half - 1) << 23) * ln_from_bits((biased - half - 1) << 23);
    return ln_select(x == x, y, x);
}

/* ln_sigmoidf   1 / (1 + e^-x).   Error below 2.83 ulp. e is only raised to -|x|, so nothing overflows. */
static inline float ln_sigmoid_of(float x, float e) /* with e = e^-|x| at hand */
{
    return 1.0f / (1.0f + e) * ln_select(x < 0.0f, e, 1.0f);
}

static inline float ln_sigmoidf(float x)
{
    return ln_sigmoid_of(x, ln_expf(-ln_absf(x)));
}

/* ln_tanhf   Error below 1.34 ulp.   |x| < 0.625: x + x^3 P(x^2).   Else 1 - 2/(e^2|x| + 1), with the sign of x. */
static inline float ln_tanh_of(float x, float e) /* with e = e^2|x| at hand */
{
    const float a = ln_absf(x), s = x * x;
    float p = -0.00569486059f;
    p = p * s + 0.0206300691f;
    p = p * s + -0.0537369512f;
    p = p * s + 0.133314088f;
    p = p * s + -0.333332807f;
    const float near = a + a * s * p;
    const float far = 1.0f - 2.0f / (e + 1.0f);
    return ln_copysignf(ln_select(a < 0.625f, near, far), x);
}

static inline float ln_tanhf(float x)
{
    return ln_tanh_of(x, ln_expf(2.0f * ln_absf(x)));
}

/* ln_erff   2/sqrt(pi) times the integral of e^(-u^2) from 0 to x.   Error below 1.37 ulp.
 * |x| < 0.9: x + x P(x^2).   Else 1 - e^-Q(|x|), with the sign of x; Q is fitted up to 4, where 1 is reached. */
static inline float ln_erf_exponent(float x) /* -Q(|x|) */
{
    const float a = ln_absf(x), b = ln_select(a < 4.0f, a, 4.0f);
    float q = -0.000197292175f;
    q = q * b + 0.00305669592f;
    q = q * b + -0.0222814251f;
    q = q * b + 0.104046322f;
    q = q * b + 0.637049615f;
    q = q * b + 1.12775552f;
    q = q * b + 0.000176069647f;
    return -q;
}

static inline float ln_erf_of(float x, float e) /* with e = e^-Q(|x|) at hand */
{
    const float a = ln_absf(x), s = x * x;
    float p = -0.000606623187f;
    p = p * s + 0.00500691636f;
    p = p * s + -0.0267751478f;
    p = p * s + 0.11282023f;
    p = p * s + -0.376125097f;
    p = p * s + 0.128379151f;
    const float near = a + a * p, far = ln_select(x == x, 1.0f - e, x);
    return ln_copysignf(ln_select(a < 0.9f, near, far), x);
}

static inline float ln_erff(float x)
{
    return ln_erf_of(x, ln_expf(ln_erf_exponent(x)));
}

/* ln_sqrtf   Correctly rounded for every x; NaN below 0. For a few numbers, not for arrays. */
float ln_sqrtf(float x);

/* ln_f16   The float32 that an IEEE half is; exact. The patterns of inf and NaN, which no LiteNet file holds, give
 * 65536 and more. A denormal half m * 2^-24 is read as 2^-14 (1 + m/1024), less 2^-14: no denormal float appears,
 * which would be slow on some machines and zero on others. */
static inline float ln_f16(uint16_t half)
{
    const uint32_t magnitude = (uint32_t)(half & 0x7FFFu) << 13;
    const uint32_t denormal = magnitude < 0x00800000u; /* 1 or 0 */
    const float y = ln_from_bits(magnitude + ((112u + denormal) << 23)) - (denormal ? 6.103515625e-5f : 0.0f);
    return ln_from_bits(ln_to_bits(y) | (uint32_t)(half & 0x8000u) << 16);
}

/* Weights, used where they lie in the file: ln_open has seen that they start at a multiple of their size. A machine of
 * the other byte order turns each as it reads it. */
#if defined(__BYTE_ORDER__) && defined(__ORDER_BIG_ENDIAN__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define LN_BIG_ENDIAN
#endif

static inline const float *ln_floats(const uint8_t *w)
{
    return (const float *)(const void *)w;
}

static inline const uint16_t *ln_halves(const uint8_t *w)
{
    return (const uint16_t *)(const void *)w;
}

static inline float ln_stored_f32(const float *w)
{
#ifdef LN_BIG_ENDIAN
    const uint8_t *b = (const uint8_t *)w;
    return ln_from_bits((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
#else
    return *w;
#endif
}

static inline float ln_stored_f16(const uint16_t *w)
{
#ifdef LN_BIG_ENDIAN
    return ln_f16((uint16_t)(*w >> 8 | *w << 8));
#else
    return ln_f16(*w);
#endif
}

enum { LN_LANES = 16 }; /* values handled together: kernels pad to it, so that loops have a fixed length */

/* t[i] = e^t[i] for LN_LANES values */
void ln_exp_lanes(float *t);

/* v[i] = activation(v[i]) for i < n; n must be a multiple of LN_LANES, act one of LN_ACT_*.
 * gelu, gelu_tanh, silu and hard_swish of h are within 2e-7 |h| of the true value. They are written as the definition
 * is, so that -inf gives NaN where the formula says -inf * 0. */
void ln_activate(uint32_t act, float alpha, float *v, size_t n);

#endif
