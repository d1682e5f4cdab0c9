/* The parts of ln_math.h that are not worth a copy at each use. */
#include "ln_math.h"

#include "ln_ops.h"

/* x = mantissa * 2^(exponent-23) with an even exponent, so sqrt(x) = sqrt(mantissa * 2^25) * 2^(exponent/2 - 24).
 * That root is a whole number of 25 bits and a rest, and is found bit by bit, as on paper. */
float ln_sqrtf(float x)
{
    const uint32_t bits = ln_to_bits(x);
    if (x != x || bits == 0x7F800000u || (bits & 0x7FFFFFFFu) == 0) return x; /* NaN, inf, zeros */
    if (bits & 0x80000000u) return ln_from_bits(0x7FC00000u);

    int32_t exponent = (int32_t)(bits >> 23) - 127;
    uint32_t mantissa = bits & 0x007FFFFFu;
    if (exponent == -127) {
        exponent = -126;
        for (; !(mantissa & 0x00800000u); exponent--) mantissa <<= 1;
    } else {
        mantissa |= 0x00800000u;
    }
    if (exponent & 1) {
        mantissa <<= 1;
        exponent--;
    }
    uint64_t rest = (uint64_t)mantissa << 25, root = 0;
    for (uint64_t bit = (uint64_t)1 << 48; bit; bit >>= 2) {
        const int fits = rest >= root + bit;
        if (fits) rest -= root + bit;
        root = (root >> 1) + (fits ? bit : 0);
    }
    /* 24 bits and one to round by, which decides alone: a root never lies halfway between two floats */
    const uint32_t rounded = (uint32_t)((root + 1) >> 1);
    return ln_from_bits((uint32_t)(exponent / 2 + 126) * 0x00800000u + rounded);
}

#if defined(__GNUC__)
#define SHARED __attribute__((noinline)) /* one copy, which everything else calls */
#else
#define SHARED
#endif

SHARED void ln_exp_lanes(float *t)
{
    for (int j = 0; j < LN_LANES; j++) t[j] = ln_expf(t[j]);
}

/* t[i] = f(t[i]) for LN_LANES values: exponents, their exponentials, and what f makes of both. */
#if defined(LN_WITH_ACT_SIGMOID) || defined(LN_WITH_ACT_SILU)
SHARED static void sigmoid_lanes(float *t)
{
    float e[LN_LANES];
    for (int j = 0; j < LN_LANES; j++) e[j] = -ln_absf(t[j]);
    ln_exp_lanes(e);
    for (int j = 0; j < LN_LANES; j++) t[j] = ln_sigmoid_of(t[j], e[j]);
}

#endif
#if defined(LN_WITH_ACT_TANH) || defined(LN_WITH_ACT_GELU_TANH)
SHARED static void tanh_lanes(float *t)
{
    float e[LN_LANES];
    for (int j = 0; j < LN_LANES; j++) e[j] = 2.0f * ln_absf(t[j]);
    ln_exp_lanes(e);
    for (int j = 0; j < LN_LANES; j++) t[j] = ln_tanh_of(t[j], e[j]);
}

#endif
#ifdef LN_WITH_ACT_GELU
static void erf_lanes(float *t)
{
    float e[LN_LANES];
    for (int j = 0; j < LN_LANES; j++) e[j] = ln_erf_exponent(t[j]);
    ln_exp_lanes(e);
    for (int j = 0; j < LN_LANES; j++) t[j] = ln_erf_of(t[j], e[j]);
}

#endif
/* y[j] = formula, in h = v[j] and t[j] */
#define EACH(y, formula)                     \
    for (int j = 0; j < LN_LANES; j++) {     \
        const float h = v[j];                \
        (y)[j] = (formula);                  \
    }

void ln_activate(uint32_t act, float alpha, float *v, size_t n)
{
    float t[LN_LANES];
    (void)t, (void)alpha; /* not every activation needs them */
    for (; n; n -= LN_LANES, v += LN_LANES) {
        switch (act) {
#ifdef LN_WITH_ACT_RELU
        case LN_ACT_RELU: EACH(v, ln_maxf(h, 0.0f)) break;
#endif
#ifdef LN_WITH_ACT_RELU6
        case LN_ACT_RELU6: EACH(v, ln_minf(ln_maxf(h, 0.0f), 6.0f)) break;
#endif
#ifdef LN_WITH_ACT_LEAKY_RELU
        case LN_ACT_LEAKY_RELU: EACH(v, h * ln_select(h > 0.0f, 1.0f, alpha)) break;
#endif
#ifdef LN_WITH_ACT_HARD_SWISH
        case LN_ACT_HARD_SWISH: EACH(v, h * (ln_minf(ln_maxf(h + 3.0f, 0.0f), 6.0f) / 6.0f)) break;
#endif
#ifdef LN_WITH_ACT_SIGMOID
        case LN_ACT_SIGMOID: sigmoid_lanes(v); break;
#endif
#ifdef LN_WITH_ACT_TANH
        case LN_ACT_TANH: tanh_lanes(v); break;
#endif
#ifdef LN_WITH_ACT_SILU
        case LN_ACT_SILU:
            EACH(t, h)
            sigmoid_lanes(t);
            EACH(v, h * t[j])
            break;
#endif
#ifdef LN_WITH_ACT_GELU
        case LN_ACT_GELU:
            EACH(t, h * 0.707106781f)
            erf_lanes(t);
            EACH(v, 0.5f * h * (1.0f + t[j]))
            break;
#endif
#ifdef LN_WITH_ACT_GELU_TANH
        case LN_ACT_GELU_TANH:
            EACH(t, 0.797884561f * (h + 0.044715f * h * h * h))
            tanh_lanes(t);
            EACH(v, 0.5f * h * (1.0f + t[j]))
            break;
#endif
        default: return; /* LN_ACT_NONE */
        }
    }
}
