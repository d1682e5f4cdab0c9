/* int8 on ARM's processors for devices, chosen when they are compiled for. LN_NO_VECTORS asks for plain C: tests do.
 *   LN_DSP  two 16-bit halves of a word at once: Cortex-M4, M7, M33
 *   LN_MVE  vectors of 16 bytes, called Helium: Cortex-M55
 *
 * DSP: the four int8 of a word are two pairs, bytes 0 and 2 and bytes 1 and 3, each extended to halves by one instruction
 * (SXTB16). SMLAD adds the two products of two pairs to a sum, modulo 2^32: the sums of plain C, in another order. */
#ifndef LN_DSP_H
#define LN_DSP_H

#include <stdint.h>

#if defined(__ARM_FEATURE_MVE) && !defined(__ARM_BIG_ENDIAN) && !defined(LN_NO_VECTORS)
#define LN_MVE
#include <arm_mve.h>
#endif

#if defined(__ARM_FEATURE_SIMD32) && __ARM_ARCH_PROFILE == 'M' && !defined(__ARM_BIG_ENDIAN) && !defined(LN_NO_VECTORS)
#define LN_DSP
#include <arm_acle.h>

#define LN_DSP_INLINE static inline __attribute__((always_inline))

typedef uint32_t ln_four_in_memory __attribute__((aligned(1), may_alias));

LN_DSP_INLINE int8x4_t ln_four(const int8_t *p) /* four int8, aligned or not */
{
    return (int8x4_t) * (const ln_four_in_memory *)(const void *)p;
}

LN_DSP_INLINE void ln_put_four(int8_t *p, int8x4_t v)
{
    *(ln_four_in_memory *)(void *)p = (uint32_t)v;
}

LN_DSP_INLINE int16x2_t ln_even(int8x4_t v) /* bytes 0 and 2 */
{
    return __sxtb16(v);
}

LN_DSP_INLINE int16x2_t ln_odd(int8x4_t v) /* bytes 1 and 3; compilers do not join rotation and extension */
{
    int16x2_t r;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(r) : "r"(v));
    return r;
}

/* sum + a0 b0 + a1 b1 */
LN_DSP_INLINE uint32_t ln_mac_pairs(uint32_t sum, int16x2_t a, int16x2_t b)
{
    return (uint32_t)__smlad(a, b, (int32_t)sum);
}

/* sum + a0 b0, and sum + a1 b1 */
LN_DSP_INLINE uint32_t ln_mac_low(uint32_t sum, int16x2_t a, int16x2_t b)
{
    return (uint32_t)__smlabb(a, b, (int32_t)sum);
}

LN_DSP_INLINE uint32_t ln_mac_high(uint32_t sum, int16x2_t a, int16x2_t b)
{
    return (uint32_t)__smlatt(a, b, (int32_t)sum);
}

#endif
#endif
