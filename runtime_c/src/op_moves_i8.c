/* flatten, reshape, transpose, slice and pad on int8: bytes that go elsewhere, and keep what they stand for
 * Shapes and overlaps as in op_flatten.c and so on   Cost one copy for each of y. */
#include "ln_cold.h"
#include "ln_int8.h"
#include "ln_move.h"

#ifdef LN_WITH_I8

void ln_flatten_i8_run(const ln_call *c)
{
    if (c->qx[0] == c->qy) return;
    for (size_t i = 0; i < c->out.elements; i++) c->qy[i] = c->qx[0][i];
}

#ifdef LN_WITH_RESHAPE
void ln_reshape_i8_run(const ln_call *c)
{
    ln_flatten_i8_run(c);
}
#endif

#ifdef LN_WITH_TRANSPOSE
void ln_transpose_i8_run(const ln_call *c)
{
    ln_move m;
    ln_transpose_move(c, &m);
    ln_move_bytes(&m, NULL, c->qx[0], c->qy);
}
#endif

#ifdef LN_WITH_SLICE
void ln_slice_i8_run(const ln_call *c)
{
    ln_move m;
    const size_t first = ln_slice_move(c, &m);
    ln_move_bytes(&m, NULL, c->qx[0] + first, c->qy);
}
#endif

#ifdef LN_WITH_PAD
void ln_pad_i8_run(const ln_call *c)
{
    ln_move m;
    const size_t inside = ln_pad_move(c, &m);
    const int8_t border = (int8_t)ln_quant_of(c->op.attrs).border;
    for (size_t i = 0; i < c->out.elements; i++) c->qy[i] = border;
    ln_move_bytes(&m, NULL, c->qx[0], c->qy + inside);
}
#endif

#endif

#include "ln_cold_end.h"
