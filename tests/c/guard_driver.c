/* Runs models between guard pages: the file and the input can only be read, and memory that may not be touched at all
 * lies directly behind, and then directly before, each buffer. So a wrong access ends the program, also of code that
 * is compiled without sanitizers.
 *     guard_driver model.bin ...  ->  "<kernels> <runs>" for the portable kernels and each set of this processor */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "litenet.h"
#include "litenet_fast.h"
#include "litenet_file.h"

enum { ALIGN = 64, CANARY = 0x5A };

typedef struct block {
    unsigned char *pages, *at; /* at: what is lent */
    size_t mapped, bytes, page;
} block;

/* `bytes` bytes whose end, or start, meets a page that cannot be touched. */
static block guarded(size_t bytes, int at_end)
{
    block b;

    b.page = (size_t)sysconf(_SC_PAGESIZE);
    b.bytes = bytes;
    b.mapped = (bytes + b.page - 1) / b.page * b.page + 2 * b.page;
    b.pages = mmap(NULL, b.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.pages == MAP_FAILED) exit(9);
    if (mprotect(b.pages + b.page, b.mapped - 2 * b.page, PROT_READ | PROT_WRITE) != 0) exit(9);
    memset(b.pages + b.page, CANARY, b.mapped - 2 * b.page);
    b.at = at_end ? b.pages + b.mapped - b.page - bytes : b.pages + b.page;
    if (at_end) b.at -= (size_t)b.at % ALIGN; /* the few bytes behind are looked at afterwards */
    return b;
}

static void only_read(const block *b)
{
    if (mprotect(b->pages + b->page, b->mapped - 2 * b->page, PROT_READ) != 0) exit(9);
}

/* Nothing but [at, at + bytes) has been written. */
static void give_back(const block *b, const char *what)
{
    for (unsigned char *p = b->pages + b->page; p < b->pages + b->mapped - b->page; p++)
        if ((p < b->at || p >= b->at + b->bytes) && *p != CANARY) {
            fprintf(stderr, "%s: byte %td of %zu was written\n", what, p - b->at, b->bytes);
            exit(1);
        }
    munmap(b->pages, b->mapped);
}

/* Outputs that were 0 before a run, and 0xFF before another, are the same. Between those of int8 nothing is written. */
static void all_written(const ln_model *m, const unsigned char *a, const unsigned char *b)
{
    size_t at = 0;

    for (uint32_t i = 1; i < m->tensor_count; i++) {
        ln_tensor t;
        ln_get_tensor(m, i, &t);
        if (!t.is_output) continue;
        if (memcmp(a + at, b + at, t.bytes) != 0) exit(3);
        at += ((size_t)t.bytes + 3) / 4 * 4;
    }
}

static void run(const ln_file *file, int kernels, int at_end, const char *path)
{
    ln_model m;
    block bin = guarded(file->len, at_end);

    memcpy(bin.at, file->bytes, file->len);
    only_read(&bin);
    if (ln_open(&m, bin.at, file->len) != LN_OK) exit(2);
    const size_t bytes = kernels ? ln_fast_bytes(&m, kernels) : 0;
    block plan = guarded(bytes, at_end);
    if (kernels && ln_fast_prepare(&m, kernels, NULL, plan.at, bytes) != LN_OK) exit(2);
    only_read(&plan);
    block x = guarded(ln_input_bytes(&m), at_end), y = guarded(ln_output_bytes(&m), at_end);
    block arena = guarded(ln_arena_bytes(&m), at_end);
    unsigned char *before = malloc(y.bytes);
    if (before == NULL) exit(9);
    memset(x.at, 0, x.bytes);
    only_read(&x);
    for (int fill = 0; fill < 0x100; fill += 0xFF) {
        memset(arena.at, 0xFF, arena.bytes);
        memset(y.at, fill, y.bytes);
        if (ln_run(&m, arena.at, arena.bytes, x.at, y.at) != LN_OK) exit(2);
        if (fill == 0) memcpy(before, y.at, y.bytes);
    }
    all_written(&m, before, y.at);
    free(before);
    give_back(&bin, path);
    give_back(&plan, path);
    give_back(&x, path);
    give_back(&y, path);
    give_back(&arena, path);
}

int main(int argc, char **argv)
{
    for (int kernels = 0; kernels < LN_KERNELS_END; kernels++) {
        int runs = 0;
        if (kernels && !ln_fast_has(kernels)) continue;
        for (int i = 1; i < argc; i++) {
            ln_file file;
            if (ln_file_open(&file, argv[i]) != LN_OK) return 2;
            for (int at_end = 0; at_end < 2; at_end++, runs++) run(&file, kernels, at_end, argv[i]);
            ln_file_close(&file);
        }
        printf("%s %d\n", kernels ? ln_fast_name(kernels) : "portable", runs);
    }
    return 0;
}
