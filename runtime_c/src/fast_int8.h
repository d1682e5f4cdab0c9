/* int8 operators of a prepared model. Not for callers.
 *
 * ln_plan_op hands every operator that reads or writes int8 to ln_plan_int8 (fast_int8_plan.c), which fills in the step:
 * one of the ways below, or where there are no vectors for it the core's own operator. Whatever runs it, the bytes are the
 * core's: int8 has one result. */
#ifndef LN_FAST_INT8_H
#define LN_FAST_INT8_H

#include "fast_int8_set.h"
#include "fast_plan.h"
#include "ln_int8.h"

/* What a step of int8 has besides; it lies in the plan's memory. */
typedef struct ln_int8_step {
    const ln_int8 *kernels;
    ln_product8 product;
    ln_depthwise8 depthwise;
    ln_wino8 wino;
    size_t aside;                       /* bytes of x that go to scratch first, as y lies over them; 0: none */
    size_t group_weights, group_biases; /* of products with groups: prepared numbers from one to the next */
    size_t line, slack;  /* numbers of a line of the frame, and behind the last one */
    /* Of a depthwise convolution: its image in its frame, of which `lines` are made at a time, enough for `block` lines of y. */
    ln_window image;
    size_t image_line;
    uint32_t lines, block;
    const uint8_t *image_w; /* its weights */
    uint32_t joined;     /* 1: the image is what the product gives */
    size_t image_at;     /* floats of scratch before the frames, one for each worker */
    uint32_t wide;       /* the frame's numbers are int16_t */
    uint32_t as_is;      /* 1: the frame's numbers are those of x, else they are as products read them */
    uint32_t framed;     /* 1: x is copied into a frame, which is s->framed */
} ln_int8_step;

/* Does the operator read or write int8? */
static inline int ln_touches_i8(const ln_call *c)
{
    return ln_i8_type(c->out.dtype) || ln_i8_type(c->in[0].dtype);
}

/* The kernels over bytes that go with a set of kernels on this processor; NULL if there are none. */
const ln_int8 *ln_int8_for(const ln_kernels *kernels);

/* The step of an operator for which that is so; s->call, s->x and s->y are set. */
void ln_plan_int8(ln_builder *b, ln_step *s);

/* Such a step, `alone`, and the pool behind it as one; run is NULL where that cannot be. */
void ln_plan_int8_joined(ln_builder *b, uint32_t i, const ln_step *alone, ln_step *s);

/* Is it a pool of 2 x 2 that takes each value once? (fast_join.c) */
int ln_plan_halves(const ln_call *c);

/* The ways to run such a step. x and y are not looked at: types differ. The first is the portable operator. */
void ln_step_int8(const ln_step *s, const ln_work *work, const float *x, float *y);
void ln_step_int8_product(const ln_step *s, const ln_work *work, const float *x, float *y);
void ln_step_int8_wino(const ln_step *s, const ln_work *work, const float *x, float *y);
void ln_step_int8_line_by_line(const ln_step *s, const ln_work *work, const float *x, float *y);
void ln_step_int8_depthwise(const ln_step *s, const ln_work *work, const float *x, float *y);
void ln_step_int8_add(const ln_step *s, const ln_work *work, const float *x, float *y);
void ln_step_int8_maxpool(const ln_step *s, const ln_work *work, const float *x, float *y);
void ln_step_int8_mean(const ln_step *s, const ln_work *work, const float *x, float *y);

#endif
