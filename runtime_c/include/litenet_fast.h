/* The fast way to run a model on a processor with vector units. Not part of the core.
 *
 *     ln_fast_open(&m, bin, len);                               // or ln_open: the same, but slower
 *     size_t bytes = ln_fast_bytes(&m, LN_KERNELS_BEST);
 *     void *memory = aligned_alloc(64, bytes);                  // C11; or any block that starts at a multiple of 64
 *     ln_fast_prepare(&m, LN_KERNELS_BEST, NULL, memory, bytes); // from here ln_run is fast; NULL: one thread
 *     void *arena = aligned_alloc(64, ln_arena_bytes(&m));      // ask after preparing: it may have grown
 *     ln_run(&m, arena, ln_arena_bytes(&m), x, y);
 *
 * The core alone runs every model with portable kernels, which are the definition. Preparing chooses, once, the kernels
 * of the best instruction set that this processor and its operating system have, and an algorithm for each layer; it
 * transforms the weights of 3 x 3 convolutions where Winograd's algorithm is the faster one. Results differ from the
 * portable ones in the last bits: sums run in another order, with fused multiply-adds; Winograd's by at most 1e-4 of
 * the layer's largest output. Equal inputs give equal bits, on one set of kernels. */
#ifndef LITENET_FAST_H
#define LITENET_FAST_H

#include "litenet.h"

#ifdef __cplusplus
extern "C" {
#endif
#if defined(LN_BUILDS_SHARED) && defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/* The Python binding is built from the text between the two lines marked cffi. */
/* cffi begin */

enum { LN_KERNELS_BEST = 0, LN_KERNELS_SSE2 = 1, LN_KERNELS_AVX2 = 2, LN_KERNELS_AVX512 = 3, LN_KERNELS_NEON = 4,
       LN_KERNELS_WASM = 5, LN_KERNELS_END = 6 };

/* Can this processor run these kernels, and were they built? LN_KERNELS_BEST: any at all? */
int ln_fast_has(int kernels);

/* The name of a set of kernels, such as "avx2"; for LN_KERNELS_BEST that of the set it stands for here, "portable" if
 * there is none. */
const char *ln_fast_name(int kernels);

/* As ln_open; the checksum of a large file, most of that time, is taken up to ten times as fast. */
ln_status ln_fast_open(ln_model *m, const void *bin, size_t len);

/* How a layer can be run, where there is a choice: by the direct sum, or a 3 x 3 convolution by Winograd's algorithm in
 * tiles of 2 x 2 or of 4 x 4 outputs. LN_CHOOSE: as a cost model decides. */
enum { LN_CHOOSE = 0, LN_DIRECT = 1, LN_WINOGRAD_2 = 2, LN_WINOGRAD_4 = 4 };

/* The algorithms that an operator of an open model can have: bit 1 << LN_DIRECT and so on; 0 if there is one way only. */
uint32_t ln_fast_candidates(const ln_model *m, uint32_t op_index);

/* Give operator i the algorithm choices[i] when m is prepared; one that it cannot have counts as LN_DIRECT. choices has
 * as many numbers as m has operators, is not copied, and must stay as it is until m is prepared. NULL: LN_CHOOSE for
 * all, as after ln_open. */
void ln_fast_choose(ln_model *m, const uint8_t *choices);

/* Bytes of memory ln_fast_prepare needs for an open model: its plan, and transformed weights. 0: the model is not
 * open, or the processor lacks these kernels; then there is nothing to prepare. */
size_t ln_fast_bytes(const ln_model *m, int kernels);

/* Whatever can do the parts of a job at the same time; ln_threads_start makes one. run calls part(job, index, worker)
 * for every index below parts, worker being below `threads` and different for parts that run at the same time, and
 * returns when all have been done. It may be called by several threads at once. */
typedef struct ln_pool {
    uint32_t threads;            /* the caller's included */
    void (*run)(struct ln_pool *pool, uint32_t parts, void (*part)(void *job, uint32_t index, uint32_t worker),
                void *job);
} ln_pool;

/* Threads that sleep until there is work, and sleep again: they never spin. count includes the caller's. NULL if the
 * system has no threads, or no memory. One pool can serve many models; while it is busy with a run, others do their
 * work on their own thread. Stop it when no model that was prepared with it will run again. (ln_threads.c) */
ln_pool *ln_threads_start(uint32_t count);
void ln_threads_stop(ln_pool *pool);

/* How many threads are worth having for a model on so many processors: 1, or all. Below about a millisecond, 20 to 100
 * million multiply-accumulates, waking a second thread for each layer costs more than it brings. */
uint32_t ln_fast_threads(const ln_model *m, int kernels, uint32_t processors);

/* Prepare m to run fast, on the threads of `pool`, or on the caller's alone if it is NULL. The same bits come out with
 * any number of threads. memory starts at a multiple of 64, must outlive m and not change; ln_run only reads it, so
 * threads may share it. Afterwards ln_arena_bytes(m) may be larger. LN_OK, or LN_NULL_POINTER, LN_ARENA_TOO_SMALL,
 * LN_ARENA_MISALIGNED, and m stays as it was. */
ln_status ln_fast_prepare(ln_model *m, int kernels, ln_pool *pool, void *memory, size_t bytes);

/* Bytes of memory that a prepared model's plan and transformed weights take; 0 if it is not prepared. */
size_t ln_fast_size(const ln_model *m);

/* What was chosen for an operator: "portable", "direct", "winograd 4x4", ... A constant text. */
const char *ln_fast_algorithm(const ln_model *m, uint32_t op_index);

/* Multiply-adds in registers and nothing else, `rounds` times a few: what these kernels' arithmetic can reach at most.
 * Returns how many floating-point operations that was; 0 if there are no such kernels. */
double ln_fast_spin(int kernels, uint32_t rounds);

/* cffi end */

#if defined(LN_BUILDS_SHARED) && defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
