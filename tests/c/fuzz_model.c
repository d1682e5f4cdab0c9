/* Fuzz harness of the loader and the runtime, for libFuzzer and AFL++ (make fuzz). Bytes are opened as they are; what
 * is accepted is explained, run and self-tested, by the portable kernels and by those of each instruction set here,
 * with dead memory overwritten (attack.h). */
#ifndef FUZZ_PORTABLE /* AFL++'s compiler takes many minutes over the other kernels */
#define ATTACK_FAST
#endif
#define ATTACK_LARGEST (1 << 16) /* thousands of files a second */
#include "mutate_model.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t len);
size_t LLVMFuzzerCustomMutator(unsigned char *data, size_t len, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(unsigned char *data, size_t len, size_t most);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t len)
{
    static char text[2048];

    attack(data, len, text, sizeof text);
    return 0;
}

#ifdef FUZZ_LIBFUZZER
size_t LLVMFuzzerCustomMutator(unsigned char *data, size_t len, size_t most, unsigned seed)
{
    if (seed % 8) {
        const size_t n = mutate_model(data, len, most, seed);
        if (n) return n;
    }
    const size_t n = LLVMFuzzerMutate(data, len, most);
    if (seed / 8 % 8) repair(data, n);
    return n;
}
#endif
