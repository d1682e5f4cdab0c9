/* What the files that make the plan share: fast_plan.c and fast_plan_depthwise.c, each operator by itself, and
 * fast_join.c, several as one. */
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
    uint64_t transformed; /* floats of Winograd's weights that are to be made */
    float **widened;     /* half weights of each operator as floats, where kernels->halves is 0 */
    uint64_t plain;      /* bytes of weights in the file, but for those that it holds transformed */
} ln_builder;

/* Bytes of the plan's memory, a multiple of 64 from its start; NULL while they are counted. */
void *ln_plan_take(ln_builder *b, uint64_t bytes);

/* Where a tensor is. */
ln_place ln_plan_place(const ln_model *m, uint32_t index);

/* Operator i by itself; with `pool` 1, a convolution of whose output the largest of each 2 x 2 is kept. */
void ln_plan_op(ln_builder *b, uint32_t i, uint32_t pool, ln_step *s);

/* Into how many parts a step is cut. */
uint32_t ln_plan_parts(const ln_builder *b, const ln_step *s);

/* Do these floats share memory? */
int ln_plan_overlap(const ln_place *a, uint64_t a_floats, const ln_place *b, uint64_t b_floats);

/* Operator i and those that follow as one step; run is NULL where they cannot be one. alone: i by itself. */
void ln_plan_joined(ln_builder *b, uint32_t i, const ln_step *alone, ln_step *s);

/* The step of a depthwise convolution, s->call; it stays as it is where the kernels cannot. */
void ln_plan_depthwise(const ln_builder *b, ln_step *s);

/* Of a convolution's step, and of that of the depthwise one which alone reads what it makes, one step; 0 if that is not
 * possible. between: where the convolution's output would have gone. The caller sets depthwise.source. */
int ln_plan_line_by_line(const ln_builder *b, const ln_step *convolution, const ln_step *depthwise,
                         const ln_place *between, ln_step *s);

#endif
