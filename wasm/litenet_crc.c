/* ln_crc32 as ln_crc.c has it, 8 bytes a step through eight tables; but they are made at the first call: to make 8 KB
 * takes microseconds, to fetch them takes longer. A module has one thread, so it may keep them. */
#include "ln_internal.h"

static uint32_t T[8][256]; /* T[k][v]: the CRC register v, 8 (k + 1) steps on */

static void make_tables(void)
{
    for (uint32_t v = 0; v < 256; v++) {
        uint32_t crc = v;
        for (int step = 0; step < 8; step++) crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
        T[0][v] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t v = 0; v < 256; v++) T[k][v] = T[k - 1][v] >> 8 ^ T[0][T[k - 1][v] & 255];
}

uint32_t ln_crc32(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;

    if (T[0][1] == 0) make_tables();
    crc = ~crc;
    for (; len >= 8; len -= 8, p += 8) {
        const uint32_t a = ln_u32(p) ^ crc, b = ln_u32(p + 4);
        crc = T[7][a & 255] ^ T[6][a >> 8 & 255] ^ T[5][a >> 16 & 255] ^ T[4][a >> 24] ^
              T[3][b & 255] ^ T[2][b >> 8 & 255] ^ T[1][b >> 16 & 255] ^ T[0][b >> 24];
    }
    for (; len; len--) crc = crc >> 8 ^ T[0][(crc ^ *p++) & 255];
    return ~crc;
}
