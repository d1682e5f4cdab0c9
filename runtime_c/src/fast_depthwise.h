/* Depthwise convolution. Part of fast_kernels.h. A tile is some positions side by side, of one panel of 16 channels, or one position at
 * an edge, of some panels: either way there are several sums under way, which hides the latency of a multiply-add. */

enum { DEPTHWISE_TAPS = 64, TOGETHER = LANES == 4 ? 2 : 4 };

typedef struct depthwise {
    ln_window g;
    ln_finish f;
    const float *w; /* of the tile's first panel: biases, then the taps */
    size_t panel;   /* weights from one panel to the next */
    size_t live;    /* channels of a panel that is not full, 0: all are */
} depthwise;

/* R positions, P panels, those taps of the window; x: under the first of these taps, of the first position. */
INLINE void depthwise_tile(const depthwise *d, ln_taps u, ln_taps v, const float *x, float *y, const int R, const int P,
                           const int full)
{
    const size_t C = (size_t)d->g.C, right = (size_t)d->g.dw * C, down = (size_t)d->g.dh * (size_t)d->g.W * C;
    const size_t next = (size_t)d->g.sw * C;
    vf s[TOGETHER * PANEL_VECTORS];

    UNROLL
    for (int p = 0; p < P; p++) {
        UNROLL
        for (int k = 0; k < PANEL_VECTORS; k++) {
            UNROLL
            for (int m = 0; m < R; m++) s[(m * P + p) * PANEL_VECTORS + k] = LOAD(d->w + p * d->panel + k * LANES);
        }
    }
    for (int32_t a = u.first; a < u.end; a++) {
        const float *seen = x + (size_t)(a - u.first) * down;
        const float *w = d->w + (1 + a * d->g.kw + v.first) * LN_PANEL;
        for (int32_t b = v.first; b < v.end; b++, seen += right, w += LN_PANEL) {
            UNROLL
            for (int p = 0; p < P; p++) {
                UNROLL
                for (int k = 0; k < PANEL_VECTORS; k++) {
                    const vf tap = LOAD(w + p * d->panel + k * LANES);
                    UNROLL
                    for (int m = 0; m < R; m++) {
                        const float *at = seen + (size_t)m * next + p * LN_PANEL + k * LANES;
                        const vf value = full ? LOAD(at)
                                         : d->live > (size_t)(k * LANES) ? load_some(at, d->live - (size_t)(k * LANES))
                                                                         : SPLAT(0.0f);
                        s[(m * P + p) * PANEL_VECTORS + k] = MADD(tap, value, s[(m * P + p) * PANEL_VECTORS + k]);
                    }
                }
            }
        }
    }
    const vf lo = SPLAT(d->f.lo), hi = SPLAT(d->f.hi);
    UNROLL
    for (int m = 0; m < R; m++) {
        UNROLL
        for (int i = 0; i < P * PANEL_VECTORS; i++) {
            const vf value = BELOW(hi, ABOVE(lo, s[m * P * PANEL_VECTORS + i]));
            float *to = y + (size_t)m * C + i * LANES;
            if (full) STORE(to, value);
            else if (d->live > (size_t)(i * LANES)) store_some(to, value, d->live - (size_t)(i * LANES));
        }
    }
}

/* THREES positions of a window three wide that moves by one: what is read for one serves the next two as well. */
enum { THREES = LANES == 16 ? 8 : 4 };

static void depthwise_threes(const depthwise *d, ln_taps u, ln_taps v, const float *x, float *y)
{
    const size_t C = (size_t)d->g.C, down = (size_t)d->g.dh * (size_t)d->g.W * C;
    const vf lo = SPLAT(d->f.lo), hi = SPLAT(d->f.hi);
    (void)v; /* all three */
    for (int k = 0; k < LN_PANEL; k += LANES) {
        const float *seen = x + k, *w = d->w + (1 + u.first * 3) * LN_PANEL + k;
        vf s[THREES];
        UNROLL
        for (int m = 0; m < THREES; m++) s[m] = LOAD(d->w + k);
        for (int32_t a = u.first; a < u.end; a++, seen += down, w += 3 * LN_PANEL) {
            const vf w0 = LOAD(w), w1 = LOAD(w + LN_PANEL), w2 = LOAD(w + 2 * LN_PANEL);
            vf in[THREES + 2];
            UNROLL
            for (int m = 0; m < THREES + 2; m++) in[m] = LOAD(seen + (size_t)m * C);
            UNROLL
            for (int m = 0; m < THREES; m++) {
                s[m] = MADD(w0, in[m], s[m]);
                s[m] = MADD(w1, in[m + 1], s[m]);
                s[m] = MADD(w2, in[m + 2], s[m]);
            }
        }
        UNROLL
        for (int m = 0; m < THREES; m++) STORE(y + (size_t)m * C + k, BELOW(hi, ABOVE(lo, s[m])));
    }
}

typedef void depthwise_of(const depthwise *d, ln_taps u, ln_taps v, const float *x, float *y);

#define DEPTHWISE(name, R, P, full)                                                                       \
    static void name(const depthwise *d, ln_taps u, ln_taps v, const float *x, float *y)                 \
    {                                                                                                    \
        depthwise_tile(d, u, v, x, y, R, P, full);                                                       \
    }
DEPTHWISE(depthwise_full_1, 1, 1, 1)
DEPTHWISE(depthwise_full_2, 2, 1, 1)
DEPTHWISE(depthwise_some_1, 1, 1, 0)
DEPTHWISE(depthwise_some_2, 2, 1, 0)
DEPTHWISE(depthwise_deep, 1, TOGETHER, 1)
#if LANES > 4
DEPTHWISE(depthwise_full_3, 3, 1, 1)
DEPTHWISE(depthwise_full_4, 4, 1, 1)
DEPTHWISE(depthwise_some_3, 3, 1, 0)
DEPTHWISE(depthwise_some_4, 4, 1, 0)
static depthwise_of *const FULL[] = {depthwise_full_1, depthwise_full_2, depthwise_full_3, depthwise_full_4};
static depthwise_of *const SOME[] = {depthwise_some_1, depthwise_some_2, depthwise_some_3, depthwise_some_4};
#else
static depthwise_of *const FULL[] = {depthwise_full_1, depthwise_full_2};
static depthwise_of *const SOME[] = {depthwise_some_1, depthwise_some_2};
#endif

/* `panels` panels from channel `first` on, whose weights d has. */
static void depthwise_panels(depthwise d, const ln_call *c, size_t first, size_t panels)
{
    const ln_window *g = &d.g;
    const size_t C = (size_t)g->C;
    const float *w = d.w;
    const int threes = g->kw == 3 && g->sw == 1 && g->dw == 1 && d.live == 0;
    for (int32_t i = 0; i < g->Ho; i++) {
        const int32_t top = i * g->sh - g->top;
        const ln_taps u = ln_taps_inside(top, g->dh, g->kh, g->H);
        const float *line = c->x[0] + first; /* of the first row of taps inside */
        if (u.end > u.first) line += (size_t)(top + u.first * g->dh) * (size_t)g->W * C;
        for (int32_t j = 0, count; j < g->Wo; j += count) {
            const int32_t left = j * g->sw - g->left;
            const int32_t room = g->W - 1 - left - (g->kw - 1) * g->dw; /* right of this position's last tap */
            count = left >= 0 && room >= 0 ? room / g->sw + 1 : 1; /* that see no edge */
            if (count > g->Wo - j) count = g->Wo - j;
            const int many = threes && count >= THREES;
            if (many) count = THREES;
            else if (count > TOGETHER) count = TOGETHER;
            const ln_taps v = ln_taps_inside(left, g->dw, g->kw, g->W);
            const float *x = line;
            if (v.end > v.first) x += (size_t)(left + v.first * g->dw) * C;
            float *y = c->y + ((size_t)i * (size_t)g->Wo + (size_t)j) * C + first;
            for (size_t p = 0, n; p < panels; p += n) {
                d.w = w + p * d.panel;
                n = count == 1 && panels - p >= TOGETHER ? TOGETHER : 1;
                depthwise_of *tile_of = depthwise_deep;
                if (many) tile_of = depthwise_threes;
                else if (n == 1) tile_of = d.live ? SOME[count - 1] : FULL[count - 1];
                tile_of(&d, u, v, x + p * LN_PANEL, y + p * LN_PANEL);
            }
            if (d.f.act != LN_ACT_NONE)
                for (int32_t m = 0; m < count; m++)
                    activate_any(d.f.act, d.f.alpha, y + (size_t)m * C, d.live ? d.live : panels * LN_PANEL);
        }
    }
}

static void run_depthwise_conv2d(const ln_call *c)
{
    ln_depthwise_conv2d_attrs a;
    ln_depthwise_conv2d_decode(c->op.attrs, &a);
    const ln_window g = ln_window_of(c, a.kernel_size, a.stride, a.padding, a.dilation);
    const size_t taps = (size_t)(g.kh * g.kw), C = (size_t)g.C, whole = C / LN_PANEL;
    if (taps > DEPTHWISE_TAPS) {
        ln_depthwise_conv2d_run(c);
        return;
    }
    depthwise d = {g, ln_finish_of(c->op.activation, a.alpha), NULL, (1 + taps) * LN_PANEL, 0};
    const int in_place = c->op.weight_dtype == LN_F32;
    if (in_place && whole) {
        d.w = ln_floats(c->w);
        depthwise_panels(d, c, 0, whole);
    }
    for (size_t q = in_place ? whole : 0; q * LN_PANEL < C; q++) { /* panels whose weights are widened first */
        float w[(DEPTHWISE_TAPS + 1) * LN_PANEL];
        const size_t live = C - q * LN_PANEL < LN_PANEL ? C - q * LN_PANEL : LN_PANEL, width = (live + 3) / 4 * 4;
        for (size_t t = 0; t <= taps; t++) {
            for (size_t k = width; k < LN_PANEL; k++) w[t * LN_PANEL + k] = 0.0f;
            ln_read_weights(c->w, c->op.weight_dtype, q * d.panel + t * width, w + t * LN_PANEL, width);
        }
        d.w = w;
        d.live = live < LN_PANEL ? live : 0;
        depthwise_panels(d, c, q * LN_PANEL, 1);
    }
}
