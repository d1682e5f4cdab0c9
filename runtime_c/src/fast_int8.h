/* int8 operators of a prepared model: the seam where vector kernels for them go in. Not for callers.
 *
 * ln_plan_op hands every operator that reads or writes int8 to ln_plan_int8, which fills in the step: `run`, and where a
 * kernel needs them scratch_bytes, parts, cycles and a name. Without a kernel the step is the core's own operator. Whatever
 * runs it, the bytes are the core's: int8 has one result. */
#ifndef LN_FAST_INT8_H
#define LN_FAST_INT8_H

#include "fast_plan.h"

/* Does the operator read or write int8? */
static inline int ln_touches_i8(const ln_call *c)
{
    return ln_i8_type(c->out.dtype) || ln_i8_type(c->in[0].dtype);
}

/* The step of an operator for which that is so; s->call, s->x and s->y are set. */
void ln_plan_int8(ln_builder *b, ln_step *s);

/* The places of a tensor that is int8, for a run of a step. Places count in floats: offsets in the arena and starts of
 * outputs are multiples of 4 bytes. */
static inline const int8_t *ln_i8_at(const ln_place *p, const ln_work *work)
{
    return (const int8_t *)(work->base[p->base] + p->at);
}

/* The portable operator. x and y are not looked at: types differ. */
void ln_step_int8(const ln_step *s, const ln_work *work, const float *x, float *y);

#endif
