#include "ln_move.h"
#include "ln_vec8.h"

static void copy(float *y, const float *x, size_t n)
{
    size_t k = 0;
    for (; k + 8 <= n; k += 8) ln_store8(y + k, ln_load8(x + k));
    for (; k < n; k++) y[k] = x[k];
}

/* The same move with fewer axes: two that follow one another on both sides are one. */
static ln_move merged_axes(const ln_move *given)
{
    ln_move m = *given;
    for (int merged = 0; merged < 3 && m.xs[2] == m.n[3] * m.xs[3] && m.ys[2] == m.n[3] * m.ys[3]; merged++) {
        m.n[3] *= m.n[2];
        for (int k = 2; k > 0; k--) {
            m.n[k] = m.n[k - 1];
            m.xs[k] = m.xs[k - 1];
            m.ys[k] = m.ys[k - 1];
        }
        m.n[0] = 1;
    }
    return m;
}

void ln_move_values(const ln_move *given, const float *x, float *y)
{
    const ln_move m = merged_axes(given);
    for (size_t a = 0; a < m.n[0]; a++)
        for (size_t b = 0; b < m.n[1]; b++)
            for (size_t c = 0; c < m.n[2]; c++) {
                const float *from = x + a * m.xs[0] + b * m.xs[1] + c * m.xs[2];
                float *to = y + a * m.ys[0] + b * m.ys[1] + c * m.ys[2];
                if (m.xs[3] == 1 && m.ys[3] == 1)
                    copy(to, from, m.n[3]);
                else
                    for (size_t d = 0; d < m.n[3]; d++) to[d * m.ys[3]] = from[d * m.xs[3]];
            }
}

void ln_move_bytes(const ln_move *given, const int8_t *table, const int8_t *x, int8_t *y)
{
    const ln_move m = merged_axes(given);
    for (size_t a = 0; a < m.n[0]; a++)
        for (size_t b = 0; b < m.n[1]; b++)
            for (size_t c = 0; c < m.n[2]; c++) {
                const int8_t *from = x + a * m.xs[0] + b * m.xs[1] + c * m.xs[2];
                int8_t *to = y + a * m.ys[0] + b * m.ys[1] + c * m.ys[2];
                if (table)
                    for (size_t d = 0; d < m.n[3]; d++) to[d * m.ys[3]] = table[from[d * m.xs[3]] + 128];
                else
                    for (size_t d = 0; d < m.n[3]; d++) to[d * m.ys[3]] = from[d * m.xs[3]];
            }
}

uint32_t ln_four_dims(const ln_tensor *t, size_t dims[4])
{
    const uint32_t front = 4u - t->rank;
    for (uint32_t k = 0; k < 4; k++) dims[k] = k < front ? 1 : t->dims[k - front];
    return front;
}

void ln_four_steps(const size_t dims[4], size_t steps[4])
{
    steps[3] = 1;
    for (int k = 3; k > 0; k--) steps[k - 1] = steps[k] * dims[k];
}
