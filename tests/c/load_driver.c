/* Opens a model as a small program on a device would, runs it once, and prints what that cost. With LN_TEST_FAST it is
 * prepared for the fast kernels, and their memory counts with the arena.
 *     load_driver model.bin  ->  "<microseconds of open> <resident bytes gained> <file bytes> <arena bytes>" */
#define _POSIX_C_SOURCE 200112L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "litenet.h"
#include "litenet_fast.h"
#include "litenet_file.h"

static long resident(void) /* bytes of this process in memory */
{
    long total = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%ld %ld", &total, &pages) != 2) exit(2);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

int main(int argc, char **argv)
{
    ln_file file;
    ln_model m;
    double best = 1e30;
    const long before = resident();
    if (argc != 2) return 2;
    for (int i = 0; i < 5; i++) { /* the best of five: the file is warm */
        const double start = now();
        if (ln_file_open(&file, argv[1]) != LN_OK || ln_open(&m, file.bytes, file.len) != LN_OK) return 1;
        if (now() - start < best) best = now() - start;
        if (i < 4) ln_file_close(&file);
    }
    size_t fast_bytes = 0;
    void *memory = NULL;
#ifdef LN_TEST_FAST
    fast_bytes = ln_fast_bytes(&m, LN_KERNELS_BEST);
    if (posix_memalign(&memory, 64, fast_bytes + 1) != 0) return 1;
    if (ln_fast_prepare(&m, LN_KERNELS_BEST, NULL, memory, fast_bytes) != LN_OK) return 1;
#endif
    const size_t arena_bytes = ln_arena_bytes(&m);
    void *arena = malloc(arena_bytes ? arena_bytes : 1);
    void *x = calloc(ln_input_bytes(&m), 1), *y = calloc(ln_output_bytes(&m), 1);
    if (arena == NULL || x == NULL || y == NULL || ln_run(&m, arena, arena_bytes, x, y) != LN_OK) return 1;
    printf("%.0f %ld %zu %zu\n", best, resident() - before, file.len, arena_bytes + fast_bytes);
    free(memory);
    free(arena);
    free(x);
    free(y);
    ln_file_close(&file);
    return 0;
}
