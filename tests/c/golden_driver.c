/* Self-tests of models, by the portable kernels and by the best of this processor:  golden_driver model.bin ...
 * Prints the name of those kernels, then the number of models. */
#define _POSIX_C_SOURCE 200112L /* posix_memalign */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "litenet.h"
#include "litenet_fast.h"
#include "litenet_file.h"

static void *aligned(size_t bytes)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, bytes ? bytes : 1) != 0) exit(2);
    memset(p, 0xFF, bytes); /* NaN */
    return p;
}

static void test(const char *path, ln_model *m, void *x, void *y)
{
    void *arena = aligned(ln_arena_bytes(m));
    char why[512];
    if (ln_selftest(m, arena, ln_arena_bytes(m), x, y) != LN_OK) {
        ln_explain(m, why, sizeof why);
        fprintf(stderr, "%s: %s\n", path, why);
        exit(1);
    }
    free(arena);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        ln_file file;
        ln_model m;
        if (ln_file_open(&file, argv[i]) != LN_OK || ln_open(&m, file.bytes, file.len) != LN_OK) return 2;
        void *x = aligned(ln_input_bytes(&m)), *y = aligned(ln_output_bytes(&m));
        test(argv[i], &m, x, y);
        const size_t bytes = ln_fast_bytes(&m, LN_KERNELS_BEST);
        void *memory = aligned(bytes);
        if (bytes && ln_fast_prepare(&m, LN_KERNELS_BEST, NULL, memory, bytes) != LN_OK) return 2;
        if (bytes) test(argv[i], &m, x, y);
        free(memory);
        free(x);
        free(y);
        ln_file_close(&file);
    }
    printf("%s %d\n", ln_fast_name(LN_KERNELS_BEST), argc - 1);
    return 0;
}
