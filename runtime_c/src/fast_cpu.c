/* Which kernels this processor can run. A set needs its instructions and, for wide registers, an operating system
 * that saves them: both are asked, each time, as the answer is cheap and a table of our own would be state. */
#include "ln_cold.h"
#include "fast.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>

static uint32_t saved_registers(void) /* low half of XCR0: which registers the system saves */
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static int has_x86(int kernels)
{
    enum { FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28, F16C = 1 << 29 }; /* leaf 1, ecx */
    enum { AVX2 = 1 << 5, AVX512F = 1 << 16 };                               /* leaf 7, ebx */
    enum { YMM = 0x06, ZMM = 0xE6 };
    const uint32_t need = FMA | OSXSAVE | AVX | F16C;
    unsigned a, b, c, d;

    if (kernels == LN_KERNELS_SSE2) return 1; /* every x86-64 */
    if (__get_cpuid_max(0, NULL) < 7) return 0; /* once: a virtual machine takes microseconds for each cpuid */
    __cpuid(1, a, b, c, d);
    if ((c & need) != need) return 0;
    __cpuid_count(7, 0, a, b, c, d);
    if (!(b & AVX2)) return 0;
    const uint32_t saved = saved_registers();
    if (kernels == LN_KERNELS_AVX2) return (saved & YMM) == YMM;
    return (b & AVX512F) && (saved & ZMM) == ZMM;
}
#endif

static const ln_kernels *built(int kernels) /* and runnable; NULL if not */
{
    switch (kernels) {
#if defined(__x86_64__) && defined(__GNUC__)
    case LN_KERNELS_SSE2: return &ln_kernels_sse2;
    case LN_KERNELS_AVX2: return has_x86(kernels) ? &ln_kernels_avx2 : NULL;
    case LN_KERNELS_AVX512: return has_x86(kernels) ? &ln_kernels_avx512 : NULL;
#endif
#if defined(__ARM_NEON) && defined(__GNUC__)
    case LN_KERNELS_NEON: return &ln_kernels_neon;
#endif
#if defined(__wasm_simd128__)
    case LN_KERNELS_WASM: return &ln_kernels_wasm;
#endif
    default: return NULL;
    }
}

const ln_kernels *ln_kernels_for(int kernels)
{
    if (kernels != LN_KERNELS_BEST) return built(kernels);
    for (int k = LN_KERNELS_END - 1; k > LN_KERNELS_BEST; k--) {
        const ln_kernels *found = built(k);
        if (found) return found;
    }
    return NULL;
}

int ln_fast_has(int kernels)
{
    return ln_kernels_for(kernels) != NULL;
}

const char *ln_fast_name(int kernels)
{
    static const char *const names[] = {"portable", "sse2", "avx2", "avx512", "neon", "wasm"};
    if (kernels > LN_KERNELS_BEST && kernels < LN_KERNELS_END) return names[kernels];
    const ln_kernels *best = ln_kernels_for(kernels);
    return best ? best->name : names[0];
}

double ln_fast_spin(int kernels, uint32_t rounds)
{
    const ln_kernels *k = ln_kernels_for(kernels);
    if (k == NULL || k->spin == NULL) return 0.0;
    const float result = k->spin(rounds);
    const double flops = 2.0 * rounds * LN_SPIN_CHAINS * k->lanes;
    return result >= 0.0f ? flops : 0.0; /* it is: looked at so that the work is not left out */
}

#include "ln_cold_end.h"
