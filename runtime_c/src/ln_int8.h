/* int8 arithmetic. A tensor of type i8 holds q, which stands for the real number scale (q - zero point). No op_*_i8.c
 * has a float in it, so that every machine gives the same bytes. FORMAT.md, "int8".
 *
 * Sums wrap modulo 2^32, as unsigned numbers do; what an int32_t is made from one, by compilers of every machine that
 * this runs on, is the number with the same bits. `>>` of a negative number rounds down on all of them too. */
#ifndef LN_INT8_H
#define LN_INT8_H

#include "ln_internal.h"

/* The numbers of an int8 operator's record. What the operator does not use is 0. */
typedef struct ln_quant {
    int32_t lo, hi;      /* results are held within */
    uint32_t shift;      /* S */
    int32_t border;      /* of pad */
    int32_t m1, m2;      /* M1, M2 */
} ln_quant;

static inline int32_t ln_i8_of(uint8_t byte)
{
    return (int8_t)byte; /* as above */
}

static inline int32_t ln_i32(const uint8_t *p)
{
    return (int32_t)ln_u32(p);
}

static inline ln_quant ln_quant_of(const uint8_t *attrs)
{
    const uint8_t *r = attrs + LN_QUANT_AT;
    const ln_quant q = {ln_i8_of(r[0]), ln_i8_of(r[1]), r[2], ln_i8_of(r[3]), (int32_t)ln_word_at(r + 4),
                        (int32_t)ln_word_at(r + 8)};
    return q;
}

/* acc M / 2^(31+S), halves up: one rounding, as the second shift drops no more than the first would have. */
static inline int32_t ln_requant(int32_t acc, int32_t M, uint32_t S)
{
    return (int32_t)(((int64_t)acc * M + ((int64_t)1 << (30 + S))) >> 31) >> S;
}

/* A sum of products of zero-free numbers, over 2^S, halves up. */
static inline int32_t ln_shifted(uint32_t sum, uint32_t S)
{
    return (int32_t)(sum + ((uint32_t)1 << (S - 1))) >> S;
}

/* v M / 2^S, halves up. */
static inline int32_t ln_rescale(int32_t v, int32_t M, uint32_t S)
{
    return ln_shifted((uint32_t)v * (uint32_t)M, S);
}

/* To the nearest whole number, halves away from zero, of t held within -512 to 512; 0 of a NaN. The one function here
 * that knows floats: for what leads into int8. */
static inline int32_t ln_rounded(float t)
{
    if (!(t == t)) return 0;
    t = t < -512.0f ? -512.0f : t > 512.0f ? 512.0f : t;
    return (int32_t)(t + (t >= 0.0f ? 0.5f : -0.5f));
}

/* z + v within lo to hi. v can be any number, z is a zero point. */
static inline int8_t ln_held(const ln_quant *q, int32_t z, int32_t v)
{
    const int32_t y = (int32_t)((uint32_t)z + (uint32_t)v);
    return (int8_t)(y < q->lo ? q->lo : y > q->hi ? q->hi : y);
}

#endif
