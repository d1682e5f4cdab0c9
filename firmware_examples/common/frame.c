#include "frame.h"

uint16_t ln_crc16(const uint8_t *data, uint16_t n)
{
    uint16_t crc = 0xFFFF;

    while (n--) {
        crc = (uint16_t)(crc ^ (uint16_t)*data++ << 8);
        for (int bit = 0; bit < 8; bit++) crc = (uint16_t)((uint16_t)(crc << 1) ^ (crc & 0x8000u ? 0x1021u : 0u));
    }
    return crc;
}

static uint16_t u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (uint16_t)p[1] << 8);
}

static int whole(const ln_frame *f)
{
    if (f->bad || f->left || f->count < LN_FRAME_HEAD + 2) return 0;
    const uint16_t length = u16(f->bytes + 4);
    if (length > LN_FRAME_PAYLOAD || f->count != LN_FRAME_HEAD + length + 2) return 0;
    return ln_crc16(f->bytes, (uint16_t)(f->count - 2)) == u16(f->bytes + f->count - 2);
}

static void keep(ln_frame *f, uint8_t byte)
{
    if (f->count == LN_FRAME_BYTES) f->bad = 1;
    else f->bytes[f->count++] = byte;
}

int ln_frame_read(ln_frame *f, uint8_t byte)
{
    if (byte == 0) {
        const int found = whole(f);
        if (!found) f->count = 0;
        f->block = f->left = f->bad = 0;
        return found;
    }
    if (f->block == 0) f->count = 0; /* the first byte after a zero */
    if (f->left) {
        keep(f, byte);
        f->left--;
        return 0;
    }
    if (f->block && f->block != 255) keep(f, 0); /* between two blocks stood a zero */
    f->block = byte;
    f->left = (uint8_t)(byte - 1);
    return 0;
}

void ln_frame_send(ln_frame *f, uint8_t type, uint16_t sequence, uint16_t length, void (*put)(uint8_t byte))
{
    const uint16_t end = (uint16_t)(LN_FRAME_HEAD + length);

    f->bytes[0] = LN_FRAME_VERSION;
    f->bytes[1] = type;
    f->bytes[2] = (uint8_t)sequence;
    f->bytes[3] = (uint8_t)(sequence >> 8);
    f->bytes[4] = (uint8_t)length;
    f->bytes[5] = (uint8_t)(length >> 8);
    const uint16_t crc = ln_crc16(f->bytes, end);
    f->bytes[end] = (uint8_t)crc;
    f->bytes[end + 1] = (uint8_t)(crc >> 8);

    put(0);
    for (uint16_t at = 0, total = (uint16_t)(end + 2); at <= total;) { /* blocks: a length, then what is not zero */
        uint16_t n = 0;
        while (at + n < total && f->bytes[at + n] != 0) n++;
        put((uint8_t)(n + 1));
        for (uint16_t i = 0; i < n; i++) put(f->bytes[at + i]);
        at = (uint16_t)(at + n + 1);
    }
    put(0);
    f->count = f->block = f->left = f->bad = 0;
}
