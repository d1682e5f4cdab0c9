/* The operators that are not products, as the core has them in op_*.c, with vectors. Part of fast_kernels.h. */

static float sum_of(vf v)
{
    float t[LANES];
    STORE(t, v);
    for (int n = LANES / 2; n; n /= 2)
        for (int k = 0; k < n; k++) t[k] += t[n + k];
    return t[0];
}

static void run_activation(const ln_call *c)
{
    ln_activation_attrs a;
    ln_activation_decode(c->op.attrs, &a);
    const size_t n = c->out.elements;
    if (c->y != c->x[0])
        for (size_t i = 0; i < n; i += LANES) store_some(c->y + i, load_some(c->x[0] + i, n - i), n - i);
    activate_any(c->op.activation, a.alpha, c->y, n);
}

static void run_add(const ln_call *c)
{
    ln_add_attrs a;
    ln_add_decode(c->op.attrs, &a);
    const size_t n = c->out.elements, whole = n / LANES * LANES;
    const float *x = c->x[0], *x2 = c->x[1];
    if (c->op.activation == LN_ACT_RELU) {
        for (size_t i = 0; i < whole; i += LANES) STORE(c->y + i, ABOVE(SPLAT(0.0f), LOAD(x + i) + LOAD(x2 + i)));
        for (size_t i = whole; i < n; i++) c->y[i] = ln_maxf(x[i] + x2[i], 0.0f);
        return;
    }
    for (size_t i = 0; i < whole; i += LANES) STORE(c->y + i, LOAD(x + i) + LOAD(x2 + i));
    for (size_t i = whole; i < n; i++) c->y[i] = x[i] + x2[i];
    activate_any(c->op.activation, a.alpha, c->y, n);
}

static void run_maxpool2d(const ln_call *c)
{
    ln_maxpool2d_attrs a;
    ln_maxpool2d_decode(c->op.attrs, &a);
    const ln_window g = ln_window_of(c, a.kernel_size, a.stride, a.padding, NULL);
    const size_t C = (size_t)g.C, W = (size_t)g.W;
    float *y = c->y;
    for (int32_t i = 0; i < g.Ho; i++) {
        const int32_t top = i * g.sh - g.top;
        const ln_taps u = ln_taps_inside(top, 1, g.kh, g.H);
        const int32_t rows = u.end - u.first;
        for (int32_t j = 0; j < g.Wo; j++, y += C) {
            const int32_t left = j * g.sw - g.left;
            const ln_taps v = ln_taps_inside(left, 1, g.kw, g.W);
            const int32_t columns = v.end - v.first;
            const float *x = c->x[0] + ((size_t)(top + u.first) * W + (size_t)(left + v.first)) * C;
            for (size_t k = 0; k < C; k += LANES) {
                vf best = load_some(x + k, C - k);
                for (int32_t r = 0; r < rows; r++)
                    for (int32_t s = 0; s < columns; s++)
                        best = larger(best, load_some(x + ((size_t)r * W + (size_t)s) * C + k, C - k));
                store_some(y + k, best, C - k);
            }
        }
    }
}

static void run_avgpool2d(const ln_call *c)
{
    ln_avgpool2d_attrs a;
    ln_avgpool2d_decode(c->op.attrs, &a);
    const ln_window g = ln_window_of(c, a.kernel_size, a.stride, a.padding, NULL);
    const size_t C = (size_t)g.C, W = (size_t)g.W;
    float *y = c->y;
    for (int32_t i = 0; i < g.Ho; i++)
        for (int32_t j = 0; j < g.Wo; j++, y += C) {
            const int32_t top = i * g.sh - g.top, left = j * g.sw - g.left;
            const ln_taps u = ln_taps_inside(top, 1, g.kh, g.H), v = ln_taps_inside(left, 1, g.kw, g.W);
            const int32_t rows = u.end - u.first, columns = v.end - v.first;
            const vf count = SPLAT((float)(a.count_include_pad ? g.kh * g.kw : rows * columns));
            const float *x = c->x[0] + ((size_t)(top + u.first) * W + (size_t)(left + v.first)) * C;
            for (size_t k = 0; k < C; k += LANES) {
                vf sum = SPLAT(0.0f);
                for (int32_t r = 0; r < rows; r++)
                    for (int32_t s = 0; s < columns; s++)
                        sum += load_some(x + ((size_t)r * W + (size_t)s) * C + k, C - k);
                store_some(y + k, sum / count, C - k);
            }
        }
}

static void run_global_avg_pool(const ln_call *c)
{
    const size_t H = c->in[0].dims[0], W = c->in[0].dims[1], C = c->in[0].dims[2];
    const vf count = SPLAT((float)(H * W));
    size_t k = 0;
    for (; k + 4 * LANES <= C; k += 4 * LANES) { /* four vectors side by side hide the latency of an addition */
        const float *x = c->x[0] + k;
        vf s[4] = {SPLAT(0.0f), SPLAT(0.0f), SPLAT(0.0f), SPLAT(0.0f)};
        for (size_t i = 0; i < H; i++) {
            vf r[4] = {SPLAT(0.0f), SPLAT(0.0f), SPLAT(0.0f), SPLAT(0.0f)};
            for (size_t j = 0; j < W; j++, x += C) {
                UNROLL
                for (int v = 0; v < 4; v++) r[v] += LOAD(x + v * LANES);
            }
            UNROLL
            for (int v = 0; v < 4; v++) s[v] += r[v];
        }
        UNROLL
        for (int v = 0; v < 4; v++) STORE(c->y + k + v * LANES, s[v] / count);
    }
    for (; k < C; k += LANES) {
        const float *x = c->x[0] + k;
        vf sum = SPLAT(0.0f);
        for (size_t i = 0; i < H; i++) {
            vf row = SPLAT(0.0f);
            for (size_t j = 0; j < W; j++, x += C) row += load_some(x, C - k);
            sum += row;
        }
        store_some(c->y + k, sum / count, C - k);
    }
}

static void run_batchnorm(const ln_call *c)
{
    ln_batchnorm_attrs a;
    ln_batchnorm_decode(c->op.attrs, &a);
    const size_t C = c->in[0].dims[c->in[0].rank - 1], rows = c->in[0].elements / C;
    const float *w = ln_floats(c->w);
    for (size_t r = 0; r < rows; r++) {
        const float *x = c->x[0] + r * C;
        float *y = c->y + r * C;
        for (size_t k = 0; k < C; k += LANES) {
            const size_t n = C - k;
            store_some(y + k, MADD(load_some(x + k, n), load_some(w + k, n), load_some(w + C + k, n)), n);
        }
        activate_any(c->op.activation, a.alpha, y, C);
    }
}

static void run_prelu(const ln_call *c)
{
    const size_t C = c->in[0].dims[c->in[0].rank - 1], n = c->out.elements;
    const float *slopes = ln_floats(c->w);
    for (size_t r = 0; r < n; r += C)
        for (size_t k = 0; k < C; k += LANES) {
            const vf v = load_some(c->x[0] + r + k, C - k);
            store_some(c->y + r + k, PRELU(v, load_some(slopes + k, C - k)), C - k);
        }
}

static void run_softmax(const ln_call *c)
{
    const size_t C = c->in[0].dims[c->in[0].rank - 1], rows = c->in[0].elements / C, whole = C / LANES * LANES;
    for (size_t r = 0; r < rows; r++) {
        const float *x = c->x[0] + r * C;
        float *y = c->y + r * C, most = x[0], t[LANES];
        if (whole) {
            vf m = LOAD(x);
            for (size_t k = LANES; k < whole; k += LANES) m = larger(m, LOAD(x + k));
            STORE(t, m);
            for (int k = 0; k < LANES; k++) most = ln_largerf(most, t[k]);
        }
        for (size_t k = whole; k < C; k++) most = ln_largerf(most, x[k]);

        vf sums = SPLAT(0.0f);
        for (size_t k = 0; k < whole; k += LANES) {
            const vf e = exp_of(LOAD(x + k) - SPLAT(most));
            STORE(y + k, e);
            sums += e;
        }
        float sum = sum_of(sums);
        if (whole < C) {
            const size_t n = C - whole;
            STORE(t, exp_of(load_some(x + whole, n) - SPLAT(most)));
            for (size_t k = 0; k < n; k++) {
                y[whole + k] = t[k];
                sum += t[k];
            }
        }
        for (size_t k = 0; k < C; k += LANES) store_some(y + k, load_some(y + k, C - k) / SPLAT(sum), C - k);
    }
}

/* sum and sum of squares of x - origin, over C values */
static void moments(const float *x, size_t C, float origin, float *sum, float *squares)
{
    const size_t whole = C / LANES * LANES;
    vf s = SPLAT(0.0f), s2 = SPLAT(0.0f);
    for (size_t k = 0; k < whole; k += LANES) {
        const vf d = LOAD(x + k) - SPLAT(origin);
        s += d;
        s2 = MADD(d, d, s2);
    }
    *sum = sum_of(s);
    *squares = sum_of(s2);
    for (size_t k = whole; k < C; k++) {
        const float d = x[k] - origin;
        *sum += d;
        *squares += d * d;
    }
}

static void run_layernorm(const ln_call *c)
{
    ln_layernorm_attrs a;
    ln_layernorm_decode(c->op.attrs, &a);
    const size_t C = c->in[0].dims[c->in[0].rank - 1], rows = c->in[0].elements / C;
    const float *w = ln_floats(c->w);
    const float count = (float)C;
    for (size_t r = 0; r < rows; r++) { /* see op_layernorm.c for why the mean is corrected */
        const float *x = c->x[0] + r * C;
        float *y = c->y + r * C, sum, squares;
        moments(x, C, 0.0f, &sum, &squares);
        const float mean = sum / count;
        moments(x, C, mean, &sum, &squares);
        const float e = sum / count, var = squares / count - e * e;
        const float inv_std = 1.0f / ln_sqrtf((var > 0.0f ? var : 0.0f) + a.eps);
        for (size_t k = 0; k < C; k += LANES) {
            const size_t n = C - k;
            const vf d = ((load_some(x + k, n) - SPLAT(mean)) - SPLAT(e)) * SPLAT(inv_std);
            store_some(y + k, MADD(d, load_some(w + k, n), load_some(w + C + k, n)), n);
        }
    }
}

/* ---- depthwise convolution. A tile is some positions side by side, of one panel of 16 channels, or one position at
 * an edge, of some panels: either way there are several sums under way, which hides the latency of a multiply-add. */

enum { TOGETHER = LANES == 4 ? 2 : 4 };

typedef struct depthwise {
    ln_window g;
    ln_finish f;
    const float *w; /* of the tile's first panel: biases, then the taps */
    const float *slopes; /* of a prelu, for the tile's first panel; NULL: none */
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
            vf value = BELOW(hi, ABOVE(lo, s[m * P * PANEL_VECTORS + i]));
            if (d->slopes) value = PRELU(value, LOAD(d->slopes + i * LANES));
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
        for (int m = 0; m < THREES; m++) s[m] = BELOW(hi, ABOVE(lo, s[m]));
        if (d->slopes) {
            const vf slope = LOAD(d->slopes + k);
            UNROLL
            for (int m = 0; m < THREES; m++) s[m] = PRELU(s[m], slope);
        }
        UNROLL
        for (int m = 0; m < THREES; m++) STORE(y + (size_t)m * C + k, s[m]);
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
    const float *w = d.w, *slopes = d.slopes;
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
                if (slopes) d.slopes = slopes + p * LN_PANEL;
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

static void run_depthwise_conv2d(const ln_call *c, const ln_window *g, const ln_finish *f)
{
    const size_t taps = (size_t)(g->kh * g->kw), C = (size_t)g->C, whole = C / LN_PANEL;
    if (taps > LN_DEPTHWISE_TAPS) {
        ln_depthwise_conv2d_run(c);
        if (f->slopes) prelu_rows(f->slopes, c->y, C, c->out.elements / C, C);
        return;
    }
    depthwise d = {*g, *f, NULL, f->slopes, (1 + taps) * LN_PANEL, 0};
    const int in_place = c->op.weight_dtype == LN_F32;
    if (in_place && whole) {
        d.w = ln_floats(c->w);
        depthwise_panels(d, c, 0, whole);
    }
    for (size_t q = in_place ? whole : 0; q * LN_PANEL < C; q++) { /* panels whose weights are widened first */
        float w[(LN_DEPTHWISE_TAPS + 1) * LN_PANEL];
        const size_t live = C - q * LN_PANEL < LN_PANEL ? C - q * LN_PANEL : LN_PANEL, width = (live + 3) / 4 * 4;
        for (size_t t = 0; t <= taps; t++) {
            for (size_t k = width; k < LN_PANEL; k++) w[t * LN_PANEL + k] = 0.0f;
            ln_read_weights(c->w, c->op.weight_dtype, q * d.panel + t * width, w + t * LN_PANEL, width);
        }
        float slopes[LN_PANEL] = {0};
        if (f->slopes) {
            for (size_t k = 0; k < live; k++) slopes[k] = f->slopes[q * LN_PANEL + k];
            d.slopes = slopes;
        }
        d.w = w;
        d.live = live < LN_PANEL ? live : 0;
        depthwise_panels(d, c, q * LN_PANEL, 1);
    }
}

static float spin(uint32_t rounds)
{
    vf s[LN_SPIN_CHAINS], a = SPLAT(0.999999f), b = SPLAT(1e-6f);
    UNROLL
    for (int i = 0; i < LN_SPIN_CHAINS; i++) s[i] = SPLAT((float)i);
    for (uint32_t r = 0; r < rounds; r++) {
        UNROLL
        for (int i = 0; i < LN_SPIN_CHAINS; i++) s[i] = MADD(s[i], a, b);
    }
    for (int i = 1; i < LN_SPIN_CHAINS; i++) s[0] += s[i];
    return sum_of(s[0]);
}

const ln_kernels KERNELS = {
    KERNELS_NAME,
    LANES,
    KERNELS_NARROW,
    product,
    vector,
    wino_weights,
    wino,
    spin,
    run_depthwise_conv2d,
    {
        [LN_OP_MAXPOOL2D] = run_maxpool2d,
        [LN_OP_AVGPOOL2D] = run_avgpool2d,
        [LN_OP_GLOBAL_AVG_POOL] = run_global_avg_pool,
        [LN_OP_ADD] = run_add,
        [LN_OP_BATCHNORM] = run_batchnorm,
        [LN_OP_PRELU] = run_prelu,
        [LN_OP_LAYERNORM] = run_layernorm,
        [LN_OP_SOFTMAX] = run_softmax,
        [LN_OP_ACTIVATION] = run_activation,
    },
};
