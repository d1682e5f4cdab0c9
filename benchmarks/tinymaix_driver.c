/* Loads and runs one TinyMaix file, for wrong_files.py: "ok" and the outputs, or which call gave which error.
 * It ends itself by SIGALRM after argv[2] seconds. */
#include <unistd.h>

#include "tinymaix.h"

int main(int argc, char **argv)
{
    tm_mdl_t model;
    tm_mat_t in, out[1];

    if (argc < 3) return 2;
    alarm((unsigned)atoi(argv[2]));
    FILE *f = fopen(argv[1], "rb");
    if (f == NULL) return 2;
    fseek(f, 0, SEEK_END);
    const long bytes = ftell(f);
    rewind(f);
    uint8_t *file = malloc(bytes ? (size_t)bytes : 1);
    if (file == NULL || fread(file, 1, (size_t)bytes, f) != (size_t)bytes) return 2;
    fclose(f);

    tm_err_t error = tm_load(&model, file, NULL, NULL, &in);
    if (error != TM_OK) return printf("tm_load returned %d\n", (int)error), 1;
    for (long i = 0; i < (long)in.h * in.w * in.c; i++) in.data[i] = 0.25f;
    memset(out, 0, sizeof out);
    error = tm_run(&model, &in, out);
    if (error != TM_OK) return printf("tm_run returned %d\n", (int)error), 1;
    printf("ok");
    for (int i = 0; i < 10; i++) printf(" %.6g", out[0].data ? (double)out[0].data[i] : 0.0);
    printf("\n");
    tm_unload(&model);
    free(file);
    return 0;
}
