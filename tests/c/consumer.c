/* What a C project does with the library, as small as it gets:  consumer model.bin  ->  its answer to zeros. */
#include <litenet.h>
#include <litenet_fast.h>
#include <litenet_file.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    static float x[100000], y[1000], arena[1000000];
    ln_file file;
    ln_model m;
    if (argc != 2 || ln_file_open(&file, argv[1]) != LN_OK || ln_open(&m, file.bytes, file.len) != LN_OK) return 1;
    if (ln_run(&m, arena, sizeof arena, x, y) != LN_OK) return 1;
    for (size_t i = 0; i < ln_output_elements(&m); i++) printf("%.9g\n", (double)y[i]);
    ln_threads_stop(ln_threads_start(2)); /* the library needs threads, and says so to the linker */
    return 0;
}
