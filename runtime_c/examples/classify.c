/* What a model says about pictures, without Python:  classify model.bin [picture ...]
 *
 *     $ classify digits.bin seven.pgm
 *     seven.pgm  7  100.0 %
 *
 * A picture is a binary PGM or PPM file of 8 bits a value, or nothing but bytes: as many as the model's input has
 * values, in rows of pixels, colours in the model's order. A model whose input is no picture takes a file of float32
 * values. Without a picture the model tests itself on the golden inputs that it holds.
 *
 * `make classify` in the folder above builds it; docs/deploy.md has the same in one line, and static programs for
 * other machines.
 * Exit status: 0 all answered, 1 something could not be read or failed, 2 bad command line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "litenet.h"
#include "litenet_fast.h"
#include "litenet_file.h"

enum { SHOWN_VALUES = 8 };

static void *block(size_t bytes) /* starts at a multiple of 64; lives as long as the program */
{
    char *p = malloc(bytes + 64);
    if (p == NULL) {
        fprintf(stderr, "classify: not enough memory for %lu bytes\n", (unsigned long)bytes);
        exit(1);
    }
    return p + (64 - (size_t)p % 64);
}

static int complain(const char *path, const char *why)
{
    fprintf(stderr, "classify: %s: %s\n", path, why);
    return 1;
}

static int complain_model(const char *path, const ln_model *m)
{
    char why[512];
    ln_explain(m, why, sizeof why);
    return complain(path, why);
}

/* ---- metadata: a JSON object that the exporter wrote, in UTF-8 */

static const char *past_string(const char *p, const char *end) /* p: at the opening quote */
{
    for (p++; p < end && *p != '"'; p++)
        if (*p == '\\') p++;
    return p < end ? p + 1 : end;
}

static const char *past_value(const char *p, const char *end) /* to the comma or bracket behind it */
{
    int depth = 0;
    while (p < end && (depth > 0 || (*p != ',' && *p != '}' && *p != ']'))) {
        if (*p == '"') {
            p = past_string(p, end);
            continue;
        }
        if (*p == '{' || *p == '[') depth++;
        if (*p == '}' || *p == ']') depth--;
        p++;
    }
    return p;
}

static const char *member(const ln_model *m, const char *name, const char **end) /* its value; NULL if there is none */
{
    const size_t length = strlen(name);
    const char *p = (const char *)m->bin + m->metadata_at;
    *end = p + m->metadata_bytes;
    while (p < *end && (*p == '{' || *p == ',')) {
        const char *key = p + 1, *after = key < *end ? past_string(key, *end) : key;
        if (after == *end) break;
        if ((size_t)(after - key) == length + 2 && memcmp(key + 1, name, length) == 0) return after + 1;
        p = past_value(after + 1, *end);
    }
    return NULL;
}

static int member_is(const ln_model *m, const char *name, const char *text)
{
    const char *end, *p = member(m, name, &end);
    const size_t length = strlen(text);
    return p != NULL && (size_t)(end - p) >= length + 2 && p[0] == '"' && p[length + 1] == '"'
           && memcmp(p + 1, text, length) == 0;
}

static void print_label(const ln_model *m, size_t index) /* its name, or its number where it has none */
{
    const char *end, *p = member(m, "labels", &end);
    for (size_t i = 0; p != NULL && i < index; i++) { /* p: at the bracket or comma before a label */
        p = past_value(p + 1, end);
        if (p == end || *p != ',') p = NULL;
    }
    if (p == NULL || end - p < 2 || p[1] != '"') {
        printf("%lu", (unsigned long)index);
        return;
    }
    for (p += 2; p < end && *p != '"'; p++) {
        if (*p == '\\' && ++p < end && strchr("bfnrtu", *p)) { /* a control character */
            putchar('?');
            if (*p == 'u') p += 4;
        } else if (p < end) {
            putchar(*p);
        }
    }
}

/* ---- pictures */

static const uint8_t *number(const uint8_t *p, const uint8_t *end, uint32_t *n) /* NULL if there is none */
{
    while (p < end && (*p == '#' || *p == ' ' || (*p >= '\t' && *p <= '\r')))
        if (*p++ == '#')
            while (p < end && *p != '\n') p++;
    if (p == end || *p < '0' || *p > '9') return NULL;
    for (*n = 0; p < end && *p >= '0' && *p <= '9'; p++)
        if (*n < 100000) *n = 10 * *n + (uint32_t)(*p - '0'); /* more than any size */
    return p;
}

static int read_picture(const ln_model *m, const char *path, const uint8_t *bytes, size_t len, void *x)
{
    const size_t elements = ln_input_elements(m);
    const uint8_t *end = bytes + len, *p = bytes + 2;
    ln_preprocessing how;
    uint32_t width, height, top;

    ln_get_preprocessing(m, &how);
    if (how.color == LN_COLOR_NONE) {
        if (len != 4 * elements) return complain(path, "the model's input is no picture; expected its float32 values.");
        float *values = block(len);
        memcpy(values, bytes, len);
        const ln_status s = ln_quantize_input(m, values, x);
        return s == LN_OK ? 0 : complain(path, ln_status_text(s));
    }
    if (len < 3 || bytes[0] != 'P' || (bytes[1] != '5' && bytes[1] != '6')) {
        if (len != elements) return complain(path, "is neither PGM nor PPM (P5, P6), nor has as many bytes as the "
                                                   "model's input has values.");
        ln_frame_to_input(m, bytes, x);
        return 0;
    }
    const uint32_t channels = bytes[1] == '6' ? 3 : 1;
    if (!(p = number(p, end, &width)) || !(p = number(p, end, &height)) || !(p = number(p, end, &top)) || p == end)
        return complain(path, "its header is damaged; expected width, height and 255 behind P5 or P6.");
    if (top != 255) return complain(path, "its values do not go up to 255; only those of 8 bits are read.");
    p++;
    if ((uint64_t)(end - p) < (uint64_t)width * height * channels)
        return complain(path, "ends before its last row; copy it again.");
    const ln_status s = ln_preprocess(m, p, height, width, channels == 3 ? LN_RGB : LN_GRAY, x);
    return s == LN_OK ? 0 : complain(path, ln_status_text(s));
}

/* ---- answers */

/* y[0..n) as probabilities of classes; n, or 0 if they are plain values. y has room for one more. */
static size_t probabilities(const ln_model *m, float *y, size_t n)
{
    ln_op last;
    ln_tensor out;
    ln_get_op(m, m->op_count - 1, &last);
    ln_get_tensor(m, last.output, &out);
    const int bce = member_is(m, "loss", "bce"), sigmoid = strcmp(ln_activation_name(last.activation), "sigmoid") == 0;
    if (member_is(m, "loss", "mse") || member_is(m, "answer", "values")) return 0;
    if (out.rank != 1 || out.elements != n || (n == 1 && !bce)) return 0;
    if (strcmp(ln_op_name(last.id), "softmax") == 0) return n;
    if (bce) { /* each a probability of its own; a single one decides between two classes */
        for (size_t i = 0; i < n && !sigmoid; i++) y[i] = 1.0f / (1.0f + expf(-y[i]));
        if (n > 1) return n;
        y[1] = y[0];
        y[0] = 1.0f - y[1];
        return 2;
    }
    if (sigmoid) return n;
    float most = y[0], sum = 0.0f;
    for (size_t i = 1; i < n; i++) most = y[i] > most ? y[i] : most;
    for (size_t i = 0; i < n; i++) sum += y[i] = expf(y[i] - most);
    for (size_t i = 0; i < n; i++) y[i] /= sum;
    return n;
}

static void print_answer(const ln_model *m, const char *path, float *y)
{
    const size_t n = ln_output_elements(m), classes = probabilities(m, y, n);
    size_t best = 0;

    printf("%s  ", path);
    if (classes) {
        for (size_t i = 1; i < classes; i++) best = y[i] > y[best] ? i : best;
        print_label(m, best);
        printf("  %.1f %%\n", 100.0 * (double)y[best]);
        return;
    }
    for (size_t i = 0; i < n && i < SHOWN_VALUES; i++) printf("%s%.6g", i ? "  " : "", (double)y[i]);
    printf(n > SHOWN_VALUES ? "  ... (%lu values)\n" : "\n", (unsigned long)n);
}

/* x, out: what ln_run reads and writes; y: the answer as floats, and room for one more. */
static int answer(const ln_model *m, void *arena, const char *path, void *x, void *out, float *y)
{
    ln_file picture;
    ln_status s = ln_file_open(&picture, path);
    if (s != LN_OK) return complain(path, ln_status_text(s));
    const int unread = read_picture(m, path, picture.bytes, picture.len, x);
    ln_file_close(&picture);
    if (unread) return 1;
    s = ln_run(m, arena, ln_arena_bytes(m), x, out);
    if (s != LN_OK) return complain(path, ln_status_text(s));
    ln_dequantize_output(m, out, y);
    for (size_t i = 0; i < ln_output_elements(m); i++)
        if (!isfinite(y[i])) return complain(path, "the net's answer is not a finite number; test the model.");
    print_answer(m, path, y);
    return 0;
}

static int selftest(const char *path, ln_model *m, void *arena, void *x, void *y, const char *kernels)
{
    if (ln_selftest(m, arena, ln_arena_bytes(m), x, y) != LN_OK) return complain_model(path, m);
    printf("%s  self-test passed, %s kernels\n", path, kernels);
    return 0;
}

int main(int argc, char **argv)
{
    ln_file file;
    ln_model m;
    int failed = 0;

    if (argc < 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: classify model.bin [picture ...]\n");
        return 2;
    }
    const ln_status s = ln_file_open(&file, argv[1]);
    if (s != LN_OK) return complain(argv[1], ln_status_text(s));
    if (ln_open(&m, file.bytes, file.len) != LN_OK) return complain_model(argv[1], &m);
    const size_t bytes = ln_fast_bytes(&m, LN_KERNELS_BEST); /* 0: there are only the portable kernels */
    void *x = block(ln_input_bytes(&m)), *out = block(ln_output_bytes(&m));
    float *y = block(4 * (ln_output_elements(&m) + 1));
    if (argc == 2) failed = selftest(argv[1], &m, block(ln_arena_bytes(&m)), x, out, "portable");
    if (bytes) ln_fast_prepare(&m, LN_KERNELS_BEST, NULL, block(bytes), bytes);
    void *arena = block(ln_arena_bytes(&m));
    if (argc == 2 && bytes) failed |= selftest(argv[1], &m, arena, x, out, ln_fast_name(LN_KERNELS_BEST));
    for (int i = 2; i < argc; i++) failed |= answer(&m, arena, argv[i], x, out, y);
    ln_file_close(&file);
    return failed;
}
