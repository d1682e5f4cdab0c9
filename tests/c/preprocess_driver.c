/* Preprocess pictures: jobs on standard input, results on standard output. A job is one line,
 *     resize fit color invert pad layout height width frame_height frame_width
 * then the picture's bytes; its result is the status as one byte, then the frame. All buffers have exactly the size
 * needed, so that a sanitizer sees any access beyond them. */
#include "litenet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A model that is nothing but an input and its preprocessing. */
static ln_tensor input;
static ln_preprocessing rules;
static uint8_t header[128]; /* with these rules */

void ln_get_tensor(const ln_model *m, uint32_t index, ln_tensor *tensor)
{
    (void)m;
    if (index != 0) abort();
    *tensor = input;
}

static void put_rules(const ln_preprocessing *p)
{
    rules = *p;
    header[96] = p->resize;
    header[97] = p->fit;
    header[98] = p->color;
    header[99] = p->invert;
    header[124] = p->pad;
    memcpy(header + 100, p->mean, 12);
    memcpy(header + 112, p->std, 12);
}

static void *exactly(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (p == NULL) abort();
    return p;
}

/* ln_preprocess must give what its two halves give one after the other, though it keeps the frame inside x. */
static void check_whole(const uint8_t *pixels, uint32_t height, uint32_t width, int layout, const uint8_t *frame)
{
    const size_t bytes = sizeof(float) * input.elements;
    float *x = exactly(bytes), *want = exactly(bytes);
    ln_model m;

    memset(&m, 0, sizeof m);
    m.bin = header;
    m.len = 1; /* open, as far as ln_preprocess asks */
    ln_normalize(&rules, frame, input.elements, want);
    if (ln_preprocess(&m, pixels, height, width, layout, x) != LN_OK || memcmp(x, want, bytes) != 0) abort();
    free(x);
    free(want);
}

int main(void)
{
    static const size_t steps[] = {1, 1, 2, 3, 4, 3, 4};
    unsigned v[10];

    while (scanf("%u %u %u %u %u %u %u %u %u %u", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7, v + 8,
                 v + 9) == 10) {
        const ln_preprocessing p = {(uint8_t)v[0], (uint8_t)v[1], (uint8_t)v[2], (uint8_t)v[3], (uint8_t)v[4],
                                    {100.5f, 0.0f, 255.0f}, {3.0f, 0.1f, 77.7f}};
        const uint32_t channels = v[2] == LN_COLOR_GRAY ? 1 : 3;
        const size_t bytes = steps[v[5] <= 6 ? v[5] : 0] * v[6] * v[7];
        const size_t frame_bytes = (size_t)v[8] * v[9] * channels;
        uint8_t *pixels = exactly(bytes), *frame = exactly(frame_bytes);
        ln_status status;

        if (getchar() != '\n' || fread(pixels, 1, bytes, stdin) != bytes) return 1;
        memset(frame, 0xA5, frame_bytes);
        status = ln_preprocess_bytes(&p, pixels, v[6], v[7], (int)v[5], frame, v[8], v[9]);
        putchar((int)status);
        if (status == LN_OK) {
            const ln_tensor t = {LN_F32, 3, 1, 0, {v[8], v[9], channels, 0}, (uint32_t)frame_bytes,
                                 (uint32_t)(4 * frame_bytes), 0, 0, 0, 1.0f, 0};
            input = t;
            put_rules(&p);
            check_whole(pixels, v[6], v[7], (int)v[5], frame);
            fwrite(frame, 1, frame_bytes, stdout);
        }
        free(pixels);
        free(frame);
    }
    return 0;
}
