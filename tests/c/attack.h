/* Open bytes that may be hostile, and if they are taken for a model, use it in every way: with the sanitizers on, any
 * access that ln_open should have made impossible ends the program. */
#ifndef ATTACK_H
#define ATTACK_H

#include "litenet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 22 }; /* floats: larger models are opened, but not run */

static void put_u32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> (8 * i));
}

/* Make length and checksums true, so that what lies behind them is reached. */
static void repair(unsigned char *b, size_t len)
{
    if (len < 128) return;
    put_u32(b + 8, (uint32_t)len);
    put_u32(b + 16, ln_crc32(0, b + 128, len - 128));
    put_u32(b + 12, 0);
    put_u32(b + 12, ln_crc32(0, b, 128));
}

static void *exactly(size_t bytes) /* so that one byte too far is seen */
{
    void *p = malloc(bytes ? bytes : 1);
    if (p == NULL) exit(9);
    return p;
}

static int count_call(void *user, uint32_t i, const ln_op *op, const ln_tensor *y, const void *data)
{
    unsigned *sum = user;
    (void)i;
    (void)op;
    for (uint32_t k = 0; k < y->bytes; k++) *sum += ((const unsigned char *)data)[k];
    return 0;
}

static void use(ln_model *m)
{
    const size_t x_n = ln_input_elements(m), y_n = ln_output_elements(m), arena_n = ln_arena_bytes(m);
    uint64_t macs = 0;

    for (uint32_t i = 0; i < m->op_count; i++) macs += ln_op_macs(m, i);
    if (x_n > LARGEST || y_n > LARGEST || arena_n > 4 * (size_t)LARGEST || macs > (uint64_t)LARGEST * 8) return;
    void *x = exactly(ln_input_bytes(m)), *y = exactly(ln_output_bytes(m)), *arena = exactly(arena_n);
    float *values = exactly(4 * (x_n > y_n ? x_n : y_n));
    unsigned sum = 0;
    for (size_t i = 0; i < x_n; i++) values[i] = (float)(i % 7) - 3.0f;
    if (ln_quantize_input(m, values, x) != LN_OK) abort();
    if (ln_run_each(m, arena, arena_n, x, y, count_call, &sum) != LN_OK) abort();
    if (ln_selftest(m, arena, arena_n, x, y) == LN_OK) sum = 0;
    if (ln_dequantize_output(m, y, values) != LN_OK) abort();
    free(values);
    free(x);
    free(y);
    free(arena);
}

/* Opens a copy of b, so that reading past its end is seen. `text` gets the sentence. */
static ln_status attack(const unsigned char *b, size_t len, char *text, size_t cap)
{
    ln_model m;
    unsigned char *copy = exactly(len);

    if (len) memcpy(copy, b, len);
    const ln_status s = ln_open(&m, copy, len);
    if (s != m.status || (s == LN_OK) != (m.len != 0)) abort();
    const size_t n = ln_explain(&m, text, cap);
    if (n >= cap || strlen(text) != n) abort();
    if (s == LN_OK) use(&m);
    else if (ln_run(&m, text, cap, b, copy) != s) abort();
    free(copy);
    return s;
}

#endif
