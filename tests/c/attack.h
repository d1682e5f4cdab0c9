/* Open bytes that may be hostile, and if they are taken for a model, use it in every way: with the sanitizers on, any
 * access that ln_open should have made impossible ends the program. */
#ifndef ATTACK_H
#define ATTACK_H

#include "litenet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef ATTACK_LARGEST
#define ATTACK_LARGEST (1 << 22)
#endif
enum { LARGEST = ATTACK_LARGEST }; /* floats: larger models are opened, but not run */

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

/* After each operator, what is dead by the plan is overwritten: every byte of the arena that belongs to no tensor which
 * a later operator reads. A kernel that leaves something there for another, or reads what nobody wrote, gives other
 * results than on an arena full of NaN. */
static volatile unsigned read_values; /* keeps the reads */

typedef struct poison {
    const ln_model *m;
    unsigned char *arena, *alive; /* alive: one flag for each byte; NULL: leave the arena as it is */
    size_t bytes;
} poison;

static int poison_dead(void *user, uint32_t i, const ln_op *op, const ln_tensor *y, const void *data)
{
    const poison *p = user;
    unsigned sum = 0;

    (void)op;
    for (uint32_t k = 0; k < y->bytes; k++) sum += ((const unsigned char *)data)[k]; /* all of it can be read */
    read_values = sum;
    if (p->alive == NULL) return 0;
    memset(p->alive, 0, p->bytes);
    for (uint32_t k = 1; k < p->m->tensor_count; k++) {
        ln_tensor t;
        ln_get_tensor(p->m, k, &t);
        if (!t.is_output && t.first <= i && t.last > i) memset(p->alive + t.arena_at, 1, t.bytes);
    }
    for (size_t k = 0; k < p->bytes; k++)
        if (!p->alive[k]) p->arena[k] = 0xA5;
    return 0;
}

/* A small picture through the model's own preprocessing, if it has one, to its input. */
static void see(const ln_model *m, size_t elements, void *x)
{
    static unsigned char pixels[5 * 7 * 3];
    ln_preprocessing p;

    ln_get_preprocessing(m, &p);
    if (p.color == LN_COLOR_NONE || elements > 1 << 16) return;
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (unsigned char)(37 * i);
    if (ln_preprocess(m, pixels, 5, 7, LN_RGB, x) != LN_OK) abort();
}

/* Are the outputs a and b the same bits? Of a NaN, which weights that are none may give, sign and payload are nobody's
 * promise. */
static int same_outputs(const ln_model *m, const unsigned char *a, const unsigned char *b)
{
    for (uint32_t i = 1; i < m->tensor_count; i++) {
        ln_tensor t;
        ln_get_tensor(m, i, &t);
        if (!t.is_output) continue;
        for (uint32_t k = 0; k < t.bytes; k += t.dtype == LN_F32 ? 4 : 1) {
            float v, w;
            if (t.dtype != LN_F32 ? a[k] == b[k] : memcmp(a + k, b + k, 4) == 0) continue;
            if (t.dtype != LN_F32) return 0;
            memcpy(&v, a + k, 4);
            memcpy(&w, b + k, 4);
            if (v == v || w == w) return 0;
        }
        a += (t.bytes + 3) / 4 * 4;
        b += (t.bytes + 3) / 4 * 4;
    }
    return 1;
}

/* Run it with dead memory as it is, full of NaN at first, and with dead memory overwritten: the same bits. The answer,
 * which the caller frees; NULL for what is too large to run here. */
static unsigned char *use(ln_model *m)
{
    const size_t x_n = ln_input_elements(m), y_n = ln_output_elements(m), arena_n = ln_arena_bytes(m);
    uint64_t macs = 0;

    for (uint32_t i = 0; i < m->op_count; i++) macs += ln_op_macs(m, i);
    if (x_n > LARGEST || y_n > LARGEST || arena_n > 4 * (size_t)LARGEST || macs > (uint64_t)LARGEST * 8)
        return NULL;
    const size_t y_bytes = ln_output_bytes(m);
    const int cheap = (uint64_t)arena_n * m->op_count < LARGEST;
    void *x = exactly(ln_input_bytes(m));
    unsigned char *y = exactly(y_bytes), *again = exactly(y_bytes);
    float *values = exactly(4 * (x_n > y_n ? x_n : y_n));
    poison p = {m, exactly(arena_n), cheap ? exactly(arena_n) : NULL, arena_n};

    for (size_t i = 0; i < x_n; i++) values[i] = (float)(i % 7) - 3.0f;
    if (ln_quantize_input(m, values, x) != LN_OK || ln_check_input(m, x) != LN_OK) abort();
    memset(y, 0xFF, y_bytes);
    memset(again, 0xFF, y_bytes); /* between outputs nothing is written */
    memset(p.arena, 0xFF, arena_n);
    if (ln_run(m, p.arena, arena_n, x, y) != LN_OK) abort();
    memset(p.arena, 0xA5, arena_n);
    if (ln_run_each(m, p.arena, arena_n, x, again, poison_dead, &p) != LN_OK) abort();
    if (!same_outputs(m, y, again)) abort();
    ln_selftest(m, p.arena, arena_n, x, y); /* changes x and y */
    if (ln_dequantize_output(m, y, values) != LN_OK) abort();
    see(m, x_n, x);
    free(values);
    free(x);
    free(y);
    free(p.arena);
    free(p.alive);
    return again;
}

#ifdef ATTACK_FAST
#include "exact.h"
#include "litenet_fast.h"

/* The same, prepared for each set of kernels that this processor has, and each algorithm by turns. want: what the
 * portable kernels gave, which is the same in whole numbers. */
static void use_fast(const ln_model *opened, const unsigned char *want)
{
    const uint32_t ops = opened->op_count;
    const int exact = want != NULL && is_exact(opened);

    if (ln_input_elements(opened) > LARGEST) return;
    for (int kernels = LN_KERNELS_SSE2; kernels < LN_KERNELS_END; kernels++) {
        ln_model m = *opened;
        unsigned char *choices = exactly(ops);
        for (uint32_t i = 0; i < ops; i++) choices[i] = (unsigned char)((opened->len + i + (uint32_t)kernels) % 6);
        ln_fast_choose(&m, choices);
        const size_t bytes = ln_fast_bytes(&m, kernels);
        if (bytes && bytes < 16 * (size_t)LARGEST) {
            unsigned char *block = exactly(bytes + 64), *memory = block + (64 - (uintptr_t)block % 64) % 64;
            if (ln_fast_prepare(&m, kernels, NULL, memory, bytes) != LN_OK) abort();
            unsigned char *got = use(&m);
            if (got && exact && !same_outputs(&m, got, want)) abort();
            free(got);
            free(block);
        }
        free(choices);
    }
}
#endif

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
    if (s == LN_OK) {
        unsigned char *y = use(&m);
#ifdef ATTACK_FAST
        use_fast(&m, y);
#endif
        free(y);
    } else if (ln_run(&m, text, cap, b, copy) != s) {
        abort();
    }
    free(copy);
    return s;
}

#endif
