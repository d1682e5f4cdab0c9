/* Copying a block of up to four axes from one place to another: what slice, pad, concat and transpose are made of. */
#ifndef LN_MOVE_H
#define LN_MOVE_H

#include "ln_internal.h"

/* y[sum_k i_k ys[k]] = x[sum_k i_k xs[k]] for 0 <= i_k < n[k]; axis 3 is the innermost. */
typedef struct ln_move {
    size_t n[4], xs[4], ys[4];
} ln_move;

void ln_move_values(const ln_move *m, const float *x, float *y);
void ln_move_bytes(const ln_move *m, const int8_t *table, const int8_t *x, int8_t *y); /* table[x + 128]; NULL: x */

/* The moves of operators, whatever their type: how many values behind y, or x, they begin (slice: x; pad: y), or for
 * input i of concat, how many values of y the next one stands behind it. */
size_t ln_slice_move(const ln_call *c, ln_move *m);
size_t ln_pad_move(const ln_call *c, ln_move *m);
size_t ln_concat_move(const ln_call *c, uint32_t i, ln_move *m);
void ln_transpose_move(const ln_call *c, ln_move *m);

/* dims of t with axes of 1 in front, so that they are four. Returns how many those are: axis k of t is axis k + that. */
uint32_t ln_four_dims(const ln_tensor *t, size_t dims[4]);

/* values from one index to the next on each axis of a tensor of these dims */
void ln_four_steps(const size_t dims[4], size_t steps[4]);

#endif
