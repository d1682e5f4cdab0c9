/* concat on int8   y = z + (x - z1) M1 / 2^S, then z + (x2 - z2) M2 / 2^S, along one axis
 * x, x2, y of one shape but for that axis   Cost n multiplications. y may overlap neither. M = 2^S changes nothing. */
#include "ln_cold.h"
#include "ln_int8.h"
#include "ln_move.h"

#if defined(LN_WITH_I8) && defined(LN_WITH_CONCAT)

void ln_concat_i8_run(const ln_call *c)
{
    const ln_quant q = ln_quant_of(c->op.attrs);
    int8_t *y = c->qy;
    for (uint32_t i = 0; i < 2; i++) {
        ln_move m;
        const size_t next = ln_concat_move(c, i, &m);
        const int32_t M = i ? q.m2 : q.m1, z = c->in[i].zero_point;
        int8_t table[256];
        for (int32_t x = -128; x < 128; x++)
            table[x + 128] = ln_held(&q, c->out.zero_point, ln_rescale(x - z, M, q.shift));
        ln_move_bytes(&m, table, c->qx[i], y);
        y += next;
    }
}

#endif

#include "ln_cold_end.h"
