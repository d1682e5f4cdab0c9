/* Preprocess one picture: numbers as arguments, bytes from standard input to standard output.
 * preprocess_driver resize fit color invert pad  layout height width frame_height frame_width
 * Prints the status as one byte, then the frame. Every buffer is allocated exactly, so that a sanitizer sees any
 * access beyond it. */
#include "litenet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not reached: this driver opens no model. */
void ln_get_tensor(const ln_model *m, uint32_t index, ln_tensor *tensor)
{
    (void)m, (void)index, (void)tensor;
    abort();
}

void ln_get_preprocessing(const ln_model *m, ln_preprocessing *p)
{
    (void)m, (void)p;
    abort();
}

/* One job a line: the arguments, then the picture's bytes. Ends at the end of input. */
int main(void)
{
    static const size_t steps[] = {1, 1, 2, 3, 4, 3, 4};
    unsigned v[10];

    while (scanf("%u %u %u %u %u %u %u %u %u %u", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7, v + 8,
                 v + 9) == 10) {
        const ln_preprocessing p = {(uint8_t)v[0], (uint8_t)v[1], (uint8_t)v[2], (uint8_t)v[3], (uint8_t)v[4],
                                    {0, 0, 0}, {1, 1, 1}};
        const size_t bytes = steps[v[5] <= 6 ? v[5] : 0] * v[6] * v[7];
        const size_t frame_bytes = (size_t)v[8] * v[9] * (v[2] == LN_COLOR_GRAY ? 1 : 3);
        uint8_t *pixels = malloc(bytes ? bytes : 1), *frame = malloc(frame_bytes ? frame_bytes : 1);
        ln_status status;

        if (pixels == NULL || frame == NULL || getchar() != '\n') return 1;
        if (fread(pixels, 1, bytes, stdin) != bytes) return 1;
        memset(frame, 0xA5, frame_bytes);
        status = ln_preprocess_bytes(&p, pixels, v[6], v[7], (int)v[5], frame, v[8], v[9]);
        putchar((int)status);
        if (status == LN_OK) fwrite(frame, 1, frame_bytes, stdout);
        free(pixels);
        free(frame);
    }
    return 0;
}
