/* Runs one model on many threads at once:  threads_driver MODEL KERNELS POOL CALLERS RUNS
 *
 * CALLERS threads share the model, which was prepared with a pool of POOL threads; each has its own arena and runs it
 * RUNS times. Every run must give the bits of a run without a pool. Prints how many runs there were. */
#define _POSIX_C_SOURCE 200112L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "litenet_fast.h"
#include "litenet_file.h"

static ln_model shared;
static float *x, *want;
static int runs;

static void *aligned(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes ? bytes : 1) != 0) exit(2);
    return p;
}

static void prepare(ln_model *m, int kernels, ln_pool *pool)
{
    const size_t bytes = ln_fast_bytes(m, kernels);
    if (bytes == 0 || ln_fast_prepare(m, kernels, pool, aligned(bytes), bytes) != LN_OK) exit(3);
}

static void run_once(const ln_model *m, void *arena, float *y)
{
    if (ln_run(m, arena, ln_arena_bytes(m), x, y) != LN_OK) exit(4);
}

static void *caller(void *unused)
{
    const size_t bytes = 4 * ln_output_elements(&shared);
    void *arena = aligned(ln_arena_bytes(&shared));
    float *y = aligned(bytes);
    (void)unused;
    for (int i = 0; i < runs; i++) {
        memset(y, 0, bytes);
        run_once(&shared, arena, y);
        if (memcmp(y, want, bytes) != 0) exit(5);
    }
    free(arena);
    free(y);
    return NULL;
}

int main(int argc, char **argv)
{
    ln_file f;
    pthread_t thread[64];
    if (argc != 6 || ln_file_open(&f, argv[1]) != LN_OK || ln_open(&shared, f.bytes, f.len) != LN_OK) return 1;
    ln_model alone = shared;
    const int callers = atoi(argv[4]);
    ln_pool *pool = ln_threads_start((uint32_t)atoi(argv[3]));
    if (pool == NULL || callers > 64) return 1;
    runs = atoi(argv[5]);
    prepare(&alone, atoi(argv[2]), NULL);
    prepare(&shared, atoi(argv[2]), pool);

    const size_t n = ln_input_elements(&shared);
    x = aligned(4 * n);
    want = aligned(4 * ln_output_elements(&shared));
    for (size_t i = 0; i < n; i++) x[i] = (float)((i * 2654435761u >> 8) & 0xFFFF) / 32768.0f - 1.0f;
    run_once(&alone, aligned(ln_arena_bytes(&alone)), want);
    for (int i = 0; i < callers; i++)
        if (pthread_create(&thread[i], NULL, caller, NULL) != 0) return 1;
    for (int i = 0; i < callers; i++) pthread_join(thread[i], NULL);
    ln_threads_stop(pool);
    printf("%d\n", callers * runs);
    return 0;
}
