#include "fast_int8.h"

void ln_step_int8(const ln_step *s, const ln_work *work, const float *x, float *y)
{
    ln_call c = s->call;
    (void)x, (void)y;
    for (uint32_t k = 0; k < c.op.n_inputs; k++) {
        if (ln_i8_type(c.in[k].dtype)) c.qx[k] = ln_i8_at(&s->x[k], work);
        else c.x[k] = work->base[s->x[k].base] + s->x[k].at;
    }
    if (ln_i8_type(c.out.dtype)) c.qy = (int8_t *)(work->base[s->y.base] + s->y.at);
    else c.y = work->base[s->y.base] + s->y.at;
    if (c.op.scratch_bytes) c.scratch = work->base[LN_AT_ARENA] + c.op.scratch_at / sizeof(float);
    ln_run_op(&c);
}

void ln_plan_int8(ln_builder *b, ln_step *s)
{
    (void)b;
    s->run = ln_step_int8;
    s->algorithm = "portable";
    s->parts = 1;
}
