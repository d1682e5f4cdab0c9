/* An operator that computes something else than it should, in place of ln_<SWAP>_run, which is compiled under the name
 * ln_<SWAP>_run_true: to see whether the self-test names it. With -DREADS_DEAD it reads what an earlier operator wrote,
 * dead or not: to see whether the attack harness notices. */
#include "ln_internal.h"

#define PASTE(a, b, c) a##b##c
#define NAME(op, end) PASTE(ln_, op, end)

void NAME(SWAP, _run_true)(const ln_call *c);

void NAME(SWAP, _run)(const ln_call *c)
{
#ifdef READS_DEAD
    static const float *before;
    const float seen = before ? before[0] : 0.0f;
    NAME(SWAP, _run_true)(c);
    c->y[0] += seen;
    before = c->y;
#else
    NAME(SWAP, _run_true)(c);
    for (uint32_t i = 0; i < c->out.elements; i++)
        if (c->qy) c->qy[i] = (int8_t)(uint8_t)(c->qy[i] + 37u * (i + 1)); /* more than floats before it excuse */
        else c->y[i] = 1.25f * c->y[i] + 0.1f;
#endif
}
