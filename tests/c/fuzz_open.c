/* libFuzzer harness: any bytes, as they are and with repaired checksums. Build and run, with seeds in corpus/:
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined -Iruntime_c/include -Iruntime_c/src -Itests/c \
 *       tests/c/fuzz_open.c runtime_c/src/[lo][np]_*.c -o fuzz_open && ./fuzz_open corpus/
 */
#include "attack.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t len);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t len)
{
    char text[2048];
    unsigned char *copy = exactly(len);

    if (len) memcpy(copy, data, len);
    attack(copy, len, text, sizeof text);
    repair(copy, len);
    attack(copy, len, text, sizeof text);
    free(copy);
    return 0;
}
