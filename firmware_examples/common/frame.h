/* Frames on a serial line, as PROTOCOL.md has them: what arrives is whole and right, or it does not arrive.
 *
 *     00  COBS( version type sequence:2 length:2 payload:length crc:2 )  00
 *
 * No byte of a frame is zero but its two ends, so a reader that was lost is found again at the next zero. */
#ifndef LN_FRAME_H
#define LN_FRAME_H

#include <stdint.h>

#ifndef LN_FRAME_PAYLOAD
#define LN_FRAME_PAYLOAD 240 /* bytes of a payload at most: 240 at most, so that a frame is one COBS block; 64 at least */
#endif

enum { LN_FRAME_VERSION = 1, LN_FRAME_HEAD = 6, LN_FRAME_BYTES = LN_FRAME_HEAD + LN_FRAME_PAYLOAD + 2 };

typedef struct ln_frame {
    uint8_t bytes[LN_FRAME_BYTES]; /* decoded: head, payload, checksum */
    uint16_t count;                /* of bytes decoded so far */
    uint8_t block, left;           /* COBS: the length byte of the block, and how many of its bytes are still to come */
    uint8_t bad;                   /* 1: wait for the next zero */
} ln_frame;

/* One byte of the line. 1: f now holds a whole frame whose checksum is right. Anything else is dropped without a word. */
int ln_frame_read(ln_frame *f, uint8_t byte);

/* Finish the frame that holds a payload of `length` bytes, and send it byte by byte. f is used up. */
void ln_frame_send(ln_frame *f, uint8_t type, uint16_t sequence, uint16_t length, void (*put)(uint8_t byte));

static inline uint8_t *ln_frame_payload(ln_frame *f)
{
    return f->bytes + LN_FRAME_HEAD;
}

/* CRC-16/CCITT-FALSE: polynomial 0x1021, start 0xFFFF; 0x29B1 over "123456789". */
uint16_t ln_crc16(const uint8_t *data, uint16_t n);

#endif
