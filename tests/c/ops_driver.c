/* Runs models for tests/test_c_ops.py:  ops_driver JOBS RESULTS [KERNELS CHOICE]
 *
 * JOBS     for each: u32 bytes of the .bin, the .bin, u32 bytes of the input, the input
 * RESULTS  for each: u32 status, u32 record at fault, u32 operators, their u64 multiply-accumulates, u32 bytes of
 *          the output, the output
 * Every buffer is a block of exactly its size, so that the address sanitizer sees the first byte too far. A model of
 * one operator is also run by itself, its weights copied to a block of their own: the output must not change.
 *
 * Built with LN_TEST_FAST it prepares each model for the kernels KERNELS, with the algorithm CHOICE where it suits, and
 * also runs it operator by operator, where nothing is joined: the output must not change. */
#define _POSIX_C_SOURCE 200112L /* posix_memalign */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ln_internal.h"
#ifdef LN_TEST_FAST
#include "fast.h"
#endif

#ifdef __NEWLIB__ /* the C library of chips */
#include <malloc.h>
#define posix_memalign(p, alignment, bytes) ((*(p) = memalign(alignment, bytes)) == NULL)
#endif

static FILE *jobs, *results;

static void *block(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (p == NULL) exit(2);
    return p;
}

static void *aligned(size_t alignment, size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, alignment, bytes ? bytes : 1) != 0) exit(2);
    return p;
}

static void *read_block(size_t bytes)
{
    void *p = block(bytes);
    if (fread(p, 1, bytes, jobs) != bytes) exit(2);
    return p;
}

static void put(const void *p, size_t bytes)
{
    if (bytes && fwrite(p, 1, bytes, results) != bytes) exit(2);
}

#ifdef LN_TEST_FAST
static int ignore(void *user, uint32_t i, const ln_op *op, const ln_tensor *t, const void *y)
{
    (void)user, (void)i, (void)op, (void)t, (void)y;
    return 0;
}

static void *prepare(ln_model *m, int kernels, int choice)
{
    const size_t bytes = ln_fast_bytes_as(m, kernels, choice);
    void *memory = aligned(64, bytes);
    if (bytes == 0) exit(4);
    if (ln_fast_prepare_as(m, kernels, choice, NULL, memory, bytes) != LN_OK) exit(4);
    return memory;
}

static void run_each(const ln_model *m, const void *in, const void *want)
{
    const size_t bytes = ln_output_bytes(m);
    void *arena = aligned(16, ln_arena_bytes(m)), *out = block(bytes);
    memset(arena, 0xFF, ln_arena_bytes(m)); /* NaN */
    memset(out, 0xFF, bytes);
    if (ln_run_each(m, arena, ln_arena_bytes(m), in, out, ignore, NULL) != LN_OK || memcmp(out, want, bytes) != 0) {
        fprintf(stderr, "joined operators give other values\n");
        exit(3);
    }
    free(arena);
    free(out);
}

#else

static void run_alone(const ln_model *m, const void *in, const void *want)
{
    ln_call c;
    ln_load_call(m, 0, &c);
    uint8_t *x = block(c.in[0].bytes), *y = block(c.out.bytes);
    uint8_t *w = block(c.op.weights_bytes);
    memcpy(x, in, c.in[0].bytes);
    if (c.op.weights_bytes) memcpy(w, c.w, c.op.weights_bytes);
    const ln_places at = {x, NULL, y};
    ln_set_places(m, &c, &at);
    if (c.op.weights_bytes) c.w = w;
    ln_run_op(&c);
    if (memcmp(y, want, c.out.bytes) != 0) {
        fprintf(stderr, "%s gives other values by itself\n", ln_op_name(c.op.id));
        exit(3);
    }
    free(x);
    free(y);
    free(w);
}
#endif

int main(int argc, char **argv)
{
    if (argc < 3 || (jobs = fopen(argv[1], "rb")) == NULL || (results = fopen(argv[2], "wb")) == NULL) return 2;
    uint32_t bytes;
    while (fread(&bytes, 1, 4, jobs) == 4) {
        uint8_t *bin = read_block(bytes);
        uint32_t n;
        if (fread(&n, 1, 4, jobs) != 4) return 2;
        /* in and out start where a caller's array may: at a multiple of 4, of no more, and nothing lies behind them */
        uint8_t *in_block = block((size_t)n + 4), *in = in_block + 4;
        if (fread(in, 1, n, jobs) != n) return 2;
        ln_model m;
        uint32_t status = ln_open(&m, bin, bytes), record = (uint32_t)m.record, ops = 0, outputs = 0;
        uint8_t *out_block = NULL, *out = NULL;
        if (status == LN_OK) {
            if (ln_input_bytes(&m) != n) return 2;
#ifdef LN_TEST_FAST
            if (argc != 5) return 2;
            void *memory = prepare(&m, atoi(argv[3]), atoi(argv[4]));
#endif
            void *arena = aligned(16, ln_arena_bytes(&m));
            memset(arena, 0xFF, ln_arena_bytes(&m)); /* NaN: whatever is read must have been written */
            ops = m.op_count;
            outputs = (uint32_t)ln_output_bytes(&m);
            out_block = block((size_t)outputs + 4);
            out = out_block + 4;
            memset(out, 0xFF, outputs);
            status = ln_run(&m, arena, ln_arena_bytes(&m), in, out);
#ifdef LN_TEST_FAST
            run_each(&m, in, out);
            free(memory);
#else
            if (ops == 1) run_alone(&m, in, out);
#endif
            free(arena);
        }
        put(&status, 4);
        put(&record, 4);
        put(&ops, 4);
        for (uint32_t i = 0; i < ops; i++) {
            const uint64_t macs = ln_op_macs(&m, i);
            put(&macs, 8);
        }
        put(&outputs, 4);
        put(out, outputs);
        free(out_block);
        free(in_block);
        free(bin);
    }
    return fclose(results) ? 2 : 0;
}
