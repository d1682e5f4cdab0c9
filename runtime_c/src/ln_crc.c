/* CRC-32 (IEEE 802.3, reflected polynomial 0xEDB88320), as in zip and PNG.
 *
 * A table entry is linear over the bits of its index: it is the XOR of the entries of the bits that are set. So eight
 * numbers describe a table of 256, and the compiler builds the tables from them. Desktops take 4 bytes a step through
 * four tables (4 KB of constants, about 1.4 GB/s; most have the instructions of fast_crc.c); with LN_SMALL it is 4 bits a
 * step through one table of 16. */
#include "ln_internal.h"

/* Entry v of the table whose entries 128, 64, .., 1 are a, b, .., h. */
#define E1(v, a, b, c, d, e, f, g, h)                                                      \
    (((v) & 128 ? a : 0) ^ ((v) & 64 ? b : 0) ^ ((v) & 32 ? c : 0) ^ ((v) & 16 ? d : 0) ^  \
     ((v) & 8 ? e : 0) ^ ((v) & 4 ? f : 0) ^ ((v) & 2 ? g : 0) ^ ((v) & 1 ? h : 0))
#define E4(v, a, b, c, d, e, f, g, h)                                                      \
    E1((v), a, b, c, d, e, f, g, h), E1((v) + 1, a, b, c, d, e, f, g, h),                  \
    E1((v) + 2, a, b, c, d, e, f, g, h), E1((v) + 3, a, b, c, d, e, f, g, h)
#define E16(v, a, b, c, d, e, f, g, h)                                                     \
    E4((v), a, b, c, d, e, f, g, h), E4((v) + 4, a, b, c, d, e, f, g, h),                  \
    E4((v) + 8, a, b, c, d, e, f, g, h), E4((v) + 12, a, b, c, d, e, f, g, h)

#ifdef LN_SMALL

uint32_t ln_crc32(uint32_t crc, const void *data, size_t len)
{
    static const uint32_t T[16] = { /* T[v]: the CRC register v, four steps on */
        E16(0, 0u, 0u, 0u, 0u, 0xEDB88320u, 0x76DC4190u, 0x3B6E20C8u, 0x1DB71064u)
    };
    const uint8_t *p = data;
    crc = ~crc;
    for (; len; len--) {
        crc ^= *p++;
        crc = crc >> 4 ^ T[crc & 15];
        crc = crc >> 4 ^ T[crc & 15];
    }
    return ~crc;
}

#else

#define E64(v, a, b, c, d, e, f, g, h)                                                     \
    E16((v), a, b, c, d, e, f, g, h), E16((v) + 16, a, b, c, d, e, f, g, h),               \
    E16((v) + 32, a, b, c, d, e, f, g, h), E16((v) + 48, a, b, c, d, e, f, g, h)
#define E256(a, b, c, d, e, f, g, h)                                                       \
    {E64(0, a, b, c, d, e, f, g, h), E64(64, a, b, c, d, e, f, g, h),                      \
     E64(128, a, b, c, d, e, f, g, h), E64(192, a, b, c, d, e, f, g, h)}

static const uint32_t T[4][256] = { /* T[k][v]: the CRC register v, 8 (k + 1) steps on */
    E256(0xEDB88320u, 0x76DC4190u, 0x3B6E20C8u, 0x1DB71064u, 0x0EDB8832u, 0x076DC419u, 0xEE0E612Cu, 0x77073096u),
    E256(0x3B83984Bu, 0xF0794F05u, 0x958424A2u, 0x4AC21251u, 0xC8D98A08u, 0x646CC504u, 0x32366282u, 0x191B3141u),
    E256(0xE1351B80u, 0x709A8DC0u, 0x384D46E0u, 0x1C26A370u, 0x0E1351B8u, 0x0709A8DCu, 0x0384D46Eu, 0x01C26A37u),
    E256(0xED59B63Bu, 0x9B14583Du, 0xA032AF3Eu, 0x5019579Fu, 0xC5B428EFu, 0x8F629757u, 0xAA09C88Bu, 0xB8BC6765u),
};

uint32_t ln_crc32(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;
    crc = ~crc;
    for (; len >= 4; len -= 4, p += 4) {
        crc ^= ln_u32(p);
        crc = T[3][crc & 255] ^ T[2][crc >> 8 & 255] ^ T[1][crc >> 16 & 255] ^ T[0][crc >> 24];
    }
    for (; len; len--) crc = crc >> 8 ^ T[0][(crc ^ *p++) & 255];
    return ~crc;
}

#endif
