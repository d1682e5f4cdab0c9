/* What the files that make the plan share: fast_plan.c, each operator by itself, and fast_join.c, several as one. */
#ifndef LN_FAST_PLAN_H
#define LN_FAST_PLAN_H

#include "fast.h"

enum { LN_SECOND_CACHE = 1 << 19 }; /* bytes that surely fit it, beside others */

typedef struct ln_builder {
    const ln_model *m;
    const ln_kernels *kernels;
    int choice;          /* LN_CHOOSE, or what a test asks for */
    ln_pool *pool;
    uint8_t *memory;     /* NULL: counting */
    uint64_t used;       /* bytes of it */
    uint64_t scratch;    /* the most that a step needs */
    uint64_t cycles;     /* of all steps */
} ln_builder;

/* Bytes of the plan's memory, a multiple of 64 from its start; NULL while they are counted. */
void *ln_plan_take(ln_builder *b, uint64_t bytes);

/* Where a tensor is. */
ln_place ln_plan_place(const ln_model *m, uint32_t index);

/* Operator i by itself; with `pool` 1, a convolution of whose output the largest of each 2 x 2 is kept. */
void ln_plan_op(ln_builder *b, uint32_t i, uint32_t pool, ln_step *s);

/* Into how many parts a step is cut. */
uint32_t ln_plan_parts(const ln_builder *b, const ln_step *s);

/* Operator i and those that follow as one step; run is NULL where they cannot be one. alone: i by itself. */
void ln_plan_joined(ln_builder *b, uint32_t i, const ln_step *alone, ln_step *s);

/* Makes of a step that begins with operator i, in `joined` or else `alone`, and of those behind it a chain, where they
 * can be one, and where that pays; else leaves `joined` as it is. */
void ln_plan_chain(ln_builder *b, uint32_t i, const ln_step *alone, ln_step *joined);

#endif
