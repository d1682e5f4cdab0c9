/* Bytes of stack that a model takes:  stack_driver MODEL RESULT
 *
 * Writes the high-water marks of ln_open and of ln_run, whose input is zeros: memory below the stack pointer is painted,
 * then each is called, then the paint is looked at. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "litenet.h"

enum { PAINT = 0x5C, ROOM = 8192 };

static ln_model model;
static uint8_t *bin, *arena, *in, *out;
static size_t bytes, arena_bytes;
static volatile ln_status status;

static void *block(size_t n) /* at a multiple of 16 */
{
    uint8_t *p = calloc(1, n + 16);
    if (p == NULL) exit(2);
    return p + 16 - (uintptr_t)p % 16;
}

static __attribute__((noinline)) void open_it(void)
{
    status = ln_open(&model, bin, bytes);
}

static __attribute__((noinline)) void run_it(void)
{
    status = ln_run(&model, arena, arena_bytes, in, out);
}

/* What `call` takes besides the address that it returns to. */
static __attribute__((noinline)) unsigned long high_water(void (*call)(void))
{
    volatile uint8_t *top, *low;
    __asm__ volatile("mov %0, sp" : "=r"(top));
    for (low = top - ROOM; low < top; low++) *low = PAINT;
    call();
    for (low = top - ROOM; low < top && *low == PAINT;) low++;
    return (unsigned long)(top - low);
}

int main(int argc, char **argv)
{
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) return 2;
    bytes = (size_t)ftell(file);
    rewind(file);
    bin = block(bytes);
    if (fread(bin, 1, bytes, file) != bytes) return 2;
    const unsigned long opened = high_water(open_it);
    if (status != LN_OK) return 3;
    arena_bytes = ln_arena_bytes(&model);
    arena = block(arena_bytes);
    in = block(ln_input_bytes(&model));
    out = block(ln_output_bytes(&model));
    const unsigned long ran = high_water(run_it);
    if (status != LN_OK) return 3;
    file = fopen(argv[2], "w");
    return file == NULL || fprintf(file, "%lu %lu\n", opened, ran) < 0 || fclose(file) != 0;
}
