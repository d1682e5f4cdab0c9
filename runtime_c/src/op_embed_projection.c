/* embed_projection   y[e] = act(sum_c sum_p x[p,c] w[p,e]);  keep_channels: y[c*E+e] = act(sum_p x[p,c] w[p,e])
 * x (H,W,C), p = i*W+j   y (E) or (C*E)   w panels over p, biases zero   Cost P*E, or P*C*E, multiply-accumulates.
 * y may not overlap x.
 *
 * A channel's pixels do not lie side by side, so they are gathered, a few at a time, into a buffer on the stack: four
 * channels as four rows, or the sums over the channels as one. */
#include "ln_cold.h" /* rare, and most of the time is spent in ln_panels.c */
#include "ln_panels.h"
#include "ln_shapes.h"

ln_status ln_embed_projection_check(const ln_call *c)
{
    ln_embed_projection_attrs a;
    ln_embed_projection_decode(c->op.attrs, &a);
    const ln_tensor *x = &c->in[0], *y = &c->out;
    const uint64_t E = (uint64_t)a.embed_dim;
    if (x->rank != 3 || y->rank != 1 || y->dims[0] != E * (a.keep_channels ? x->dims[2] : 1)) return LN_BAD_SHAPE;
    return ln_check_rest(c, ln_panels_bytes(E, (uint64_t)x->dims[0] * x->dims[1], c->op.weight_dtype));
}

enum { GATHERED = 32 };

typedef struct pixels {
    const float *x;       /* channel `first` of pixel 0 */
    uint32_t P, C;
    uint32_t rows;        /* channels to gather one by one; 0: sum all */
    float value[LN_ROWS][GATHERED];
} pixels;

static uint32_t list_pixels(void *source, uint32_t k, ln_spans *list)
{
    pixels *s = source;
    const uint32_t n = s->P - k < GATHERED ? s->P - k : GATHERED;
    for (uint32_t i = 0; i < n; i++) {
        const float *x = s->x + (size_t)(k + i) * s->C;
        if (s->rows == 0) {
            float sum = 0.0f;
            for (uint32_t c = 0; c < s->C; c++) sum += x[c];
            s->value[0][i] = sum;
        }
        for (uint32_t m = 0; m < s->rows; m++) s->value[m][i] = x[m];
    }
    list->count = 1;
    list->span[0].n = n;
    for (uint32_t m = 0; m < LN_ROWS; m++) list->span[0].x[m] = s->value[m < s->rows ? m : 0];
    return k + n;
}

void ln_embed_projection_run(const ln_call *c)
{
    ln_embed_projection_attrs a;
    ln_embed_projection_decode(c->op.attrs, &a);
    pixels s;
    s.C = c->in[0].dims[2];
    s.P = c->in[0].dims[0] * c->in[0].dims[1];
    const uint32_t E = (uint32_t)a.embed_dim, channels = a.keep_channels ? s.C : 1;
    const ln_panels p = {E, s.P, c->op.weight_dtype, c->op.activation, a.alpha};

    for (uint32_t first = 0; first < channels; first += LN_ROWS) {
        const uint32_t rows = channels - first < LN_ROWS ? channels - first : LN_ROWS;
        float *y[LN_ROWS];
        for (uint32_t m = 0; m < LN_ROWS; m++) y[m] = c->y + (size_t)(first + (m < rows ? m : 0)) * E;
        s.x = c->x[0] + first;
        s.rows = a.keep_channels ? rows : 0;
        ln_panels_run(&p, c->w, list_pixels, &s, rows, y);
    }
}

uint64_t ln_embed_projection_macs(const ln_call *c)
{
    return (uint64_t)c->in[0].dims[0] * c->in[0].dims[1] * c->out.elements;
}

#include "ln_cold_end.h"
