/* Prints the CRC-32 of standard input, after checking that pieces of it at every alignment give the same. */
#include "litenet.h"

#include <stdio.h>

int main(void)
{
    static unsigned char b[1 << 14];
    const size_t len = fread(b, 1, sizeof b, stdin);

    for (size_t n = 0; n < 40 && n <= len; n++)
        if (ln_crc32(ln_crc32(0, b, n), b + n, len - n) != ln_crc32(0, b, len)) return 1;
    printf("%08x\n", (unsigned)ln_crc32(0, b, len));
    return 0;
}
