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

#ifdef __wasm__
#define spin NULL /* nobody asks there */
#else
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
#endif

const ln_kernels KERNELS = {
    KERNELS_NAME,
    LANES,
    KERNELS_NARROW,
    TAKES_HALVES,
    product,
    vector,
    wino_weights,
    wino,
    depthwise,
    spin,
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
