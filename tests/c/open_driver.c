#define _POSIX_C_SOURCE 200809L /* truncate */
/* Drives ln_open from tests/test_open.py. Each line of output is "<status><tab><sentence>", or a count a status.
 *
 *   open_driver bundle FILE               every blob of a bundle (u32 length, bytes, ...): one line each
 *   open_driver truncate FILE             every shorter length, with and without repaired checksums: counts
 *   open_driver mutate FILE REPAIR [ALL]  every byte set to several values, or to all 256: counts
 *   open_driver random FILE SEED ROUNDS   up to eight bytes at once, checksums repaired: counts
 *   open_driver selftest FILE [AT XOR]    the self-test, after byte AT of the open model is changed
 *   open_driver flips FILE                every bit of every weight flipped, one at a time: those that the self-test
 *                                         blames on another operator than theirs, and all
 *   open_driver run FILE                  input from stdin, outputs to stdout, as float32
 *   open_driver calls FILE PLAIN          what calls refuse; PLAIN: a model whose input is no picture
 *   open_driver load PATH                 through ln_file_open
 *   open_driver shrink PATH               ln_file_check before and after the file is cut short and grows again, and
 *                                         of nothing
 */
#include "attack.h"
#include "litenet_file.h"

#include "ln_internal.h" /* ln_remedy */

#include <unistd.h>

enum { STATUSES = LN_INPUT_NOT_FINITE + 1 };

static char text[2048];
static unsigned long counts[STATUSES];

static unsigned char *read_file(const char *path, size_t *len)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL || fseek(f, 0, SEEK_END) != 0) exit(8);
    *len = (size_t)ftell(f);
    rewind(f);
    unsigned char *b = exactly(*len);
    if (fread(b, 1, *len, f) != *len) exit(8);
    fclose(f);
    return b;
}

static void show(ln_status s, const char *sentence)
{
    printf("%d\t%s\n", (int)s, sentence);
}

static void show_counts(void)
{
    for (int s = 0; s < STATUSES; s++)
        if (counts[s]) printf("%d\t%lu\n", s, counts[s]);
}

static void bundle(const unsigned char *b, size_t len)
{
    for (size_t at = 0; at < len;) {
        const size_t n = b[at] | (size_t)b[at + 1] << 8 | (size_t)b[at + 2] << 16 | (size_t)b[at + 3] << 24;
        show(attack(b + at + 4, n, text, sizeof text), text);
        at += 4 + n;
    }
}

static void truncate_at_each(unsigned char *b, size_t len)
{
    unsigned char header[20];

    memcpy(header, b, sizeof header);
    for (size_t n = 0; n < len; n++) {
        counts[attack(b, n, text, sizeof text)]++;
        repair(b, n);
        counts[attack(b, n, text, sizeof text)]++;
        memcpy(b, header, sizeof header);
    }
    show_counts();
}

static void mutate(unsigned char *b, size_t len, int repaired, int all)
{
    static const unsigned char values[] = {0, 1, 2, 3, 4, 16, 64, 127, 128, 254, 255};
    unsigned char header[20];

    memcpy(header, b, sizeof header);
    for (size_t at = 0; at < len; at++) {
        const unsigned char was = b[at];
        for (size_t v = 0; v < (all ? 256 : sizeof values + 2); v++) {
            b[at] = all ? (unsigned char)v : v < sizeof values ? values[v] : v == sizeof values ? (unsigned char)(was + 1)
                                                                       : (unsigned char)(was - 1);
            if (b[at] == was) continue;
            if (repaired) repair(b, len);
            counts[attack(b, len, text, sizeof text)]++;
            memcpy(b, header, sizeof header);
            b[at] = was;
        }
    }
    show_counts();
}

static void mutate_at_random(unsigned char *b, size_t len, uint32_t seed, long rounds)
{
    unsigned char *copy = exactly(len);

    for (; rounds > 0; rounds--) {
        memcpy(copy, b, len);
        for (uint32_t n = seed >> 29; n < 8; n++) {
            seed = seed * 1664525u + 1013904223u;
            const size_t at = 20 + (seed >> 8) % (len - 20);
            seed = seed * 1664525u + 1013904223u;
            copy[at] = seed >> 30 ? (unsigned char)(seed >> 16) : copy[(at * 7 + 40) % len];
        }
        repair(copy, len);
        counts[attack(copy, len, text, sizeof text)]++;
    }
    free(copy);
    show_counts();
}

static void selftest(unsigned char *b, size_t len, size_t at, int flip)
{
    ln_model m;

    if (ln_open(&m, b, len) != LN_OK) exit(7);
    void *x = exactly(ln_input_bytes(&m)), *y = exactly(ln_output_bytes(&m));
    void *arena = exactly(ln_arena_bytes(&m));
    if (at < len) b[at] ^= (unsigned char)flip;
    const ln_status s = ln_selftest(&m, arena, ln_arena_bytes(&m), x, y);
    ln_explain(&m, text, sizeof text);
    show(s, text);
    if (ln_run(&m, arena, ln_arena_bytes(&m), x, y) != LN_OK) exit(7); /* it stays open */
    free(x);
    free(y);
    free(arena);
}

static void flips(unsigned char *b, size_t len)
{
    ln_model m;
    unsigned long wrong = 0, all = 0;

    if (ln_open(&m, b, len) != LN_OK) exit(7);
    void *x = exactly(ln_input_bytes(&m)), *y = exactly(ln_output_bytes(&m));
    void *arena = exactly(ln_arena_bytes(&m));
    for (uint32_t i = 0; i < m.op_count; i++) {
        ln_op op;
        ln_get_op(&m, i, &op);
        for (uint64_t bit = 0; bit < 8 * (uint64_t)op.weights_bytes; bit++) {
            unsigned char *at = b + op.weights_at + bit / 8;
            *at ^= (unsigned char)(1 << bit % 8);
            const ln_status s = ln_selftest(&m, arena, ln_arena_bytes(&m), x, y);
            wrong += s != LN_SELFTEST_FAILED || m.record != (int32_t)i;
            all++;
            *at ^= (unsigned char)(1 << bit % 8);
        }
    }
    printf("%lu %lu\n", wrong, all);
    free(x);
    free(y);
    free(arena);
}

static void run(const unsigned char *b, size_t len)
{
    ln_model m;

    if (ln_open(&m, b, len) != LN_OK) exit(7);
    const size_t x_n = ln_input_bytes(&m), y_n = ln_output_bytes(&m);
    void *x = exactly(x_n), *y = exactly(y_n);
    void *arena = exactly(ln_arena_bytes(&m));
    while (fread(x, 1, x_n, stdin) == x_n) {
        if (ln_run(&m, arena, ln_arena_bytes(&m), x, y) != LN_OK) exit(7);
        fwrite(y, 1, y_n, stdout);
    }
    free(x);
    free(y);
    free(arena);
}

static int stop(void *user, uint32_t i, const ln_op *op, const ln_tensor *y, const void *data)
{
    (void)user;
    (void)op;
    (void)y;
    (void)data;
    return i == 1;
}

static void call(ln_status s)
{
    show(s, ln_status_text(s));
}

static void calls(const unsigned char *b, size_t len, const char *plain_path)
{
    ln_model m;
    size_t plain_len;
    unsigned char *plain = read_file(plain_path, &plain_len);
    ln_model closed;
    ln_preprocessing p;
    unsigned char pixels[64] = {0}, frame[64], *odd = exactly(len + 4);
    float x[64] = {0}, y[64];
    const size_t big = 1 << 16;
    const uint32_t not_a_number = 0x7FC00000u;
    char *arena = exactly(big);

    for (int s = 0; s <= STATUSES; s++) /* each has a text and, but for success, a remedy; the last does not exist */
        if (strlen(ln_status_text((ln_status)s)) < 8 || (*ln_remedy((ln_status)s) != 0) != (s > 0 && s < STATUSES)) exit(7);
    for (uint32_t id = 0; id <= LN_ACT_END; id++)
        if ((*ln_activation_name(id) == '?') != (id == LN_ACT_END)) exit(7);
    for (uint32_t id = 0; id <= LN_OP_END; id++)
        if ((*ln_op_name(id) == '?') != (ln_facts(id) == NULL)) exit(7);
    call(ln_open(NULL, b, len));
    call(ln_open(&m, NULL, len));
    memcpy(odd + 1, b, len);
    call(ln_open(&m, odd + 1, len));
    ln_explain(&m, text, sizeof text);
    show(m.status, text);
    if (ln_open(&m, b, len) != LN_OK) exit(7);
    if (ln_explain(&m, NULL, 0) != strlen("no error.") || ln_explain(NULL, text, sizeof text) == 0) exit(7);
    call(ln_run(NULL, arena, big, x, y));
    call(ln_run(&m, NULL, big, x, y));
    call(ln_run(&m, arena, big, NULL, y));
    call(ln_run(&m, arena, big, x, NULL));
    call(ln_run(&m, arena, ln_arena_bytes(&m) - 1, x, y));
    call(ln_run(&m, arena + 4, ln_arena_bytes(&m), x, y));
    call(ln_run_each(&m, arena, big, x, y, stop, NULL));
    call(ln_check_input(NULL, x));
    call(ln_check_input(&m, NULL));
    call(ln_check_input(&m, x));
    for (size_t i = 0; i < ln_input_elements(&m); i++) {
        static const uint32_t bits[] = {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0xFF800001u};
        memcpy(x + i, &bits[i % 4], 4);
        if (ln_check_input(&m, x) != LN_INPUT_NOT_FINITE) exit(7);
        x[i] = i % 2 ? 3.4e38f : -1e-45f;
        if (ln_check_input(&m, x) != LN_OK) exit(7);
    }
    memcpy(x, &not_a_number, 4);
    call(ln_check_input(&m, x));
    call(ln_quantize_input(&m, x, y));
    x[0] = 0.0f;
    call(ln_quantize_input(&m, x, y));
    call(ln_quantize_input(NULL, x, y));
    call(ln_quantize_input(&m, NULL, y));
    call(ln_quantize_input(&m, x, NULL));
    call(ln_dequantize_output(&m, y, x));
    call(ln_dequantize_output(NULL, y, x));
    call(ln_dequantize_output(&m, NULL, x));
    call(ln_dequantize_output(&m, y, NULL));
    ln_get_preprocessing(&m, &p);
    call(ln_preprocess_bytes(&p, pixels, 0, 4, LN_GRAY, frame, 4, 4));
    call(ln_preprocess_bytes(NULL, pixels, 4, 4, LN_GRAY, frame, 4, 4));
    call(ln_preprocess_bytes(&p, NULL, 4, 4, LN_GRAY, frame, 4, 4));
    call(ln_preprocess_bytes(&p, pixels, 4, 4, LN_GRAY, NULL, 4, 4));
    call(ln_preprocess(NULL, pixels, 4, 4, LN_GRAY, x));
    call(ln_preprocess(&m, NULL, 4, 4, LN_GRAY, x));
    call(ln_preprocess(&m, pixels, 4, 4, LN_GRAY, NULL));
    call(ln_preprocess(&m, pixels, 0, 4, LN_GRAY, x));
    call(ln_preprocess(&m, pixels, 4, 4, LN_GRAY, x));
    memset(&closed, 0, sizeof closed);
    call(ln_preprocess(&closed, pixels, 4, 4, LN_GRAY, x));
    call(ln_selftest(&closed, arena, big, x, y));
    call(ln_run(&closed, arena, big, x, y));
    call(ln_check_input(&closed, x));
    call(ln_quantize_input(&closed, x, y));
    call(ln_dequantize_output(&closed, y, x));
    if (ln_output_elements(&closed) || ln_input_elements(&closed) || ln_arena_bytes(&closed) || ln_op_macs(&closed, 0))
        exit(7);
    call(ln_open(&closed, b, len - 1));
    call(ln_check_input(&closed, x));
    call(ln_quantize_input(&closed, x, y));
    call(ln_dequantize_output(&closed, y, x));
    call(ln_preprocess(&closed, pixels, 4, 4, LN_GRAY, x));
    call(ln_selftest(&closed, arena, big, x, y));
    call(ln_selftest(NULL, arena, big, x, y));
    call(ln_selftest(&m, arena, big, NULL, y));
    call(ln_selftest(&m, arena, big, x, NULL));
    call(ln_selftest(&m, NULL, big, x, y));
    call(ln_preprocess_bytes(&p, pixels, 4, 4, 99, frame, 4, 4));
    if (ln_open(&m, plain, plain_len) != LN_OK) exit(7);
    call(ln_preprocess(&m, pixels, 4, 4, LN_GRAY, x));
    free(plain);
    free(odd);
    free(arena);
}

static int load(const char *path)
{
    ln_file f;
    ln_model m;
    ln_status s = ln_file_open(&f, path);

    if (s == LN_OK) {
        s = ln_open(&m, f.bytes, f.len);
        ln_explain(&m, text, sizeof text);
        show(s, text);
    } else {
        call(s);
    }
    ln_file_close(&f);
    ln_file_close(&f);
    return 0;
}

static int shrink(const char *path)
{
    ln_file f;

    if (ln_file_open(&f, path) != LN_OK) return 7;
    const size_t len = f.len;
    printf("%d\n", ln_file_check(&f));
    if (truncate(path, (off_t)len / 2) != 0) return 7;
    printf("%d\n", ln_file_check(&f));
    if (truncate(path, (off_t)len) != 0) return 7; /* as long as before, and not what it was */
    printf("%d\n", ln_file_check(&f));
    ln_file_close(&f);
    printf("%d\n", ln_file_check(&f));
    printf("%d\n", ln_file_check(NULL));
    return 0;
}

int main(int argc, char **argv)
{
    size_t len;

    if (argc < 3) return 2;
    if (!strcmp(argv[1], "load")) return load(argv[2]);
    if (!strcmp(argv[1], "shrink")) return shrink(argv[2]);
    unsigned char *b = read_file(argv[2], &len);
    if (!strcmp(argv[1], "bundle")) bundle(b, len);
    else if (!strcmp(argv[1], "truncate")) truncate_at_each(b, len);
    else if (!strcmp(argv[1], "mutate")) mutate(b, len, atoi(argv[3]), argc > 4);
    else if (!strcmp(argv[1], "flips")) flips(b, len);
    else if (!strcmp(argv[1], "random")) mutate_at_random(b, len, (uint32_t)atol(argv[3]), atol(argv[4]));
    else if (!strcmp(argv[1], "selftest"))
        selftest(b, len, argc > 3 ? (size_t)atol(argv[3]) : len, argc > 4 ? atoi(argv[4]) : 0);
    else if (!strcmp(argv[1], "run")) run(b, len);
    else if (!strcmp(argv[1], "calls")) calls(b, len, argv[3]);
    else return 2;
    free(b);
    return 0;
}
