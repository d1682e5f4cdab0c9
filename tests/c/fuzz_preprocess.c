/* Fuzz harness of preprocessing, for libFuzzer and AFL++ (make fuzz). The first bytes are rules and sizes, the rest
 * pixels, as often as it takes. Buffers have exactly the size needed; what is accepted fills the whole frame, the
 * same bytes each time. */
#include "litenet.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST = 14, MOST_PIXELS = 1 << 18 };

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t len);

static unsigned char *filled(size_t bytes, const unsigned char *with, size_t n)
{
    unsigned char *p = malloc(bytes ? bytes : 1);

    if (p == NULL) exit(9);
    for (size_t i = 0; i < bytes; i++) p[i] = n ? with[i % n] : 0x5A;
    return p;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t len)
{
    static const uint32_t steps[] = {1, 1, 2, 3, 4, 3, 4};
    ln_preprocessing p;
    uint32_t side[4];

    if (len < FIRST) return 0;
    memset(&p, 0, sizeof p);
    p.resize = data[0] % 4;
    p.fit = data[1] % 4;
    p.color = data[2] % 5;
    p.invert = data[3] % 4;
    p.pad = data[4];
    const int layout = data[5] % 8;
    for (int i = 0; i < 4; i++) { /* small ones are likelier, the largest possible */
        const uint32_t v = data[6 + 2 * i] | (uint32_t)data[7 + 2 * i] << 8;
        side[i] = v & 0x8000 ? v & 0x7FFF : v & 63;
        if (v == 0xFFFF) side[i] = 65535;
        if (v == 0xFFFE) side[i] = 65536;
    }
    const uint64_t pixels = (uint64_t)side[0] * side[1], target = (uint64_t)side[2] * side[3];
    if (pixels > MOST_PIXELS || target > MOST_PIXELS || (pixels ? pixels : 1) * (target ? target : 1) > (uint64_t)1 << 24)
        return 0;
    const size_t bytes = (size_t)pixels * (layout < 7 ? steps[layout] : 1);
    const size_t frame_bytes = (size_t)target * (p.color == LN_COLOR_GRAY ? 1 : 3);
    unsigned char *picture = filled(bytes, data + FIRST, len - FIRST), *frame = filled(frame_bytes, NULL, 0);
    unsigned char *again = filled(frame_bytes, (const unsigned char *)"\xFF", 1);

    const ln_status s = ln_preprocess_bytes(&p, picture, side[0], side[1], layout, frame, side[2], side[3]);
    if (s != ln_preprocess_bytes(&p, picture, side[0], side[1], layout, again, side[2], side[3])) abort();
    if (s == LN_OK && memcmp(frame, again, frame_bytes) != 0) abort(); /* a byte was left as it was */
    free(picture);
    free(frame);
    free(again);
    return 0;
}
