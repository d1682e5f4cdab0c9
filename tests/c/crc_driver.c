/* Prints the CRC-32 of standard input, after checking that pieces of it at every alignment give the same. Built with
 * LN_TEST_FAST it is that of fast_crc.c. */
#ifdef LN_TEST_FAST
#include "fast.h"
#define CRC ln_fast_crc32
#else
#include "litenet.h"
#define CRC ln_crc32
#endif

#include <stdio.h>

int main(void)
{
    static unsigned char b[1 << 19];
    const size_t len = fread(b, 1, sizeof b, stdin);

    for (size_t n = 0; n < 40 && n <= len; n++)
        if (CRC(CRC(0, b, n), b + n, len - n) != CRC(0, b, len)) return 1;
    printf("%08x\n", (unsigned)CRC(0, b, len));
    return 0;
}
