/* Winograd's algorithm F(m x m, 3 x 3), m = 2 or 4: a tile of m x m outputs from (m+2) x (m+2) inputs with one product
 * a point, (m+2)^2 of them, where the direct sum takes 9 m^2: 2.25 or 4 times fewer. Part of fast_kernels.h.
 *
 *     y = A' [ sum over c of (G w G') (B' x B) ] A        Lavin and Gray 2015; interpolation at 0, 1, -1, 2, -2, inf
 *
 * Tiles go through in blocks of LN_WINO_BLOCK: transform their inputs to scratch, multiply point by point with the
 * weights that wino_weights made, transform back, add bias, activate, pool, store. Point by point the matrices are
 * `step` floats apart. Rows and matrices are a panel longer than they need be: their sizes are mostly powers of two,
 * and equal columns would all be in one set of the cache. */

INLINE void to_points(const int m, const vf *d, vf *t) /* t = B' d */
{
    if (m == 2) {
        t[0] = d[0] - d[2];
        t[1] = d[1] + d[2];
        t[2] = d[2] - d[1];
        t[3] = d[1] - d[3];
    } else {
        const vf a = MADD(SPLAT(-4.0f), d[2], d[4]), b = MADD(SPLAT(-4.0f), d[1], d[3]);
        const vf c = d[4] - d[2], e = d[3] - d[1];
        t[0] = MADD(SPLAT(4.0f), d[0], MADD(SPLAT(-5.0f), d[2], d[4]));
        t[1] = a + b;
        t[2] = a - b;
        t[3] = MADD(SPLAT(2.0f), e, c);
        t[4] = MADD(SPLAT(-2.0f), e, c);
        t[5] = MADD(SPLAT(4.0f), d[1], MADD(SPLAT(-5.0f), d[3], d[5]));
    }
}

INLINE void from_points(const int m, const vf *d, vf *t) /* t = A' d */
{
    if (m == 2) {
        t[0] = d[0] + d[1] + d[2];
        t[1] = d[1] - d[2] - d[3];
    } else {
        const vf s = d[1] + d[2], e = d[1] - d[2], p = d[3] + d[4], q = d[3] - d[4];
        t[0] = d[0] + s + p;
        t[1] = MADD(SPLAT(2.0f), q, e);
        t[2] = MADD(SPLAT(4.0f), p, s);
        t[3] = MADD(SPLAT(8.0f), q, e + d[5]);
    }
}

INLINE void weights_to_points(const int m, const vf *g, vf *t) /* t = G g */
{
    if (m == 2) {
        const vf s = (g[0] + g[2]) * SPLAT(0.5f), h = g[1] * SPLAT(0.5f);
        t[0] = g[0];
        t[1] = s + h;
        t[2] = s - h;
        t[3] = g[2];
    } else {
        const vf s = (g[0] + g[2]) * SPLAT(-1.0f / 6), h = g[1] * SPLAT(1.0f / 6);
        const vf p = MADD(g[0], SPLAT(1.0f / 24), g[2] * SPLAT(1.0f / 6)), q = g[1] * SPLAT(1.0f / 12);
        t[0] = g[0] * SPLAT(0.25f);
        t[1] = s - h;
        t[2] = s + h;
        t[3] = p + q;
        t[4] = p - q;
        t[5] = g[2];
    }
}

INLINE void inputs_to_points(const int m, const float *const *at, uint32_t C, float *to, size_t step)
{
    const int n = m + 2;
    for (uint32_t c = 0; c < C; c += LANES) {
        vf h[LN_WINO_POINTS], d[6], t[6];
        UNROLL_LONG
        for (int j = 0; j < n; j++) {
            UNROLL
            for (int i = 0; i < n; i++) d[i] = LOAD(at[i * n + j] + c);
            to_points(m, d, t);
            UNROLL
            for (int i = 0; i < n; i++) h[i * n + j] = t[i];
        }
        UNROLL_LONG
        for (int i = 0; i < n; i++) {
            to_points(m, h + i * n, t);
            UNROLL
            for (int j = 0; j < n; j++) STORE(to + (size_t)(i * n + j) * step + c, t[j]);
        }
    }
}

/* One vector of channels of one tile, biased and clamped: r[i*m+j]. */
INLINE void outputs_from_points(const int m, const float *from, size_t step, vf bias, vf lo, vf hi, float *r)
{
    const int n = m + 2;
    vf h[LN_WINO_POINTS], d[6], t[4];
    UNROLL_LONG
    for (int j = 0; j < n; j++) {
        UNROLL
        for (int i = 0; i < n; i++) d[i] = LOAD(from + (size_t)(i * n + j) * step);
        from_points(m, d, t);
        UNROLL
        for (int i = 0; i < m; i++) h[i * n + j] = t[i];
    }
    UNROLL_LONG
    for (int i = 0; i < m; i++) {
        from_points(m, h + i * n, t);
        UNROLL
        for (int j = 0; j < m; j++) STORE(r + (i * m + j) * LANES, BELOW(hi, ABOVE(lo, t[j] + bias)));
    }
}

#ifdef OWN_TRANSFORMS
#include OWN_TRANSFORMS
#endif

static void put_outputs(const ln_wino *p, const int m, uint32_t tile_at, const float *from, size_t step, float *y,
                        uint32_t first, uint32_t end)
{
    const uint32_t ti = tile_at / p->tiles_right, tj = tile_at % p->tiles_right;
    const uint32_t shift = p->pool, Ho = (uint32_t)p->Ho >> shift, Wo = (uint32_t)p->Wo >> shift;
    const uint32_t most = (uint32_t)m >> shift, i0 = ti * most, j0 = tj * most;
    const uint32_t rows = Ho - i0 < most ? Ho - i0 : most, columns = Wo - j0 < most ? Wo - j0 : most;
    const vf lo = SPLAT(p->finish.lo), hi = SPLAT(p->finish.hi);
    const vf sum_lo = SPLAT(p->finish.sum_lo), sum_hi = SPLAT(p->finish.sum_hi);
    const size_t corner = ((size_t)i0 * Wo + j0) * p->O;

#ifdef OWN_TRANSFORMS
    const int whole = rows == most && columns == most && !(shift && p->finish.other);
    if (m == 4 && whole && p->finish.act == LN_ACT_NONE && !p->finish.slopes) {
        const float *other = p->finish.other ? p->finish.other + corner + first : NULL;
        float *to = y + corner + first;
        outputs_from_points_4(&p->finish, from + first, step, p->bias + first, end - first, shift, other, to,
                              (size_t)Wo * p->O, p->O);
        return;
    }
#endif
    for (uint32_t o = first; o < end; o += LANES) {
        float r[16 * LANES];
        if (m == 2) outputs_from_points(2, from + o, step, LOAD(p->bias + o), lo, hi, r);
#ifdef OWN_TRANSFORMS
        else outputs_from_points_4(&p->finish, from + o, step, p->bias + o, LANES, 0, NULL, r, 4 * LANES, LANES);
#else
        else outputs_from_points(4, from + o, step, LOAD(p->bias + o), lo, hi, r);
#endif
        activate(p->finish.act, p->finish.alpha, r, (size_t)(m * m) * LANES);
        if (p->finish.slopes) prelu_rows(p->finish.slopes + o, r, LANES, (size_t)(m * m), LANES);
        for (uint32_t i = 0; i < rows; i++)
            for (uint32_t j = 0; j < columns; j++) {
                const float *s = r + ((i << shift) * (uint32_t)m + (j << shift)) * LANES;
                vf v = LOAD(s);
                if (shift)
                    v = larger(larger(v, LOAD(s + LANES)),
                               larger(LOAD(s + m * LANES), LOAD(s + (m + 1) * LANES)));
                const size_t to = corner + ((size_t)i * Wo + j) * p->O + o;
                if (p->finish.other) v = BELOW(sum_hi, ABOVE(sum_lo, v + LOAD(p->finish.other + to)));
                STORE(y + to, v);
            }
    }
}

/* The inputs of a tile; those outside the image are at `zeros`. */
static void find_inputs(const ln_wino *p, const int m, uint32_t tile_at, const float *x, const float *zeros,
                        const float **at)
{
    const int n = m + 2;
    const int32_t i0 = (int32_t)(tile_at / p->tiles_right) * m - p->top;
    const int32_t j0 = (int32_t)(tile_at % p->tiles_right) * m - p->left;
    for (int i = 0; i < n; i++) {
        const int32_t a = i0 + i;
        const float *line = a >= 0 && a < p->H ? x + (size_t)a * (size_t)p->W * p->C : NULL;
        for (int j = 0; j < n; j++) {
            const int32_t b = j0 + j;
            at[i * n + j] = line && b >= 0 && b < p->W ? line + (size_t)b * p->C : zeros;
        }
    }
}

static void wino(const ln_wino *p, const float *x, float *y, float *scratch, uint32_t first, uint32_t end,
                 uint32_t panel, uint32_t panel_end)
{
    const int m = (int)p->m;
    const uint32_t points = (uint32_t)((m + 2) * (m + 2));
    const size_t weights_step = (size_t)ln_wino_step(p->C, p->O);
    const uint32_t blocks = (end - first + LN_WINO_BLOCK - 1) / LN_WINO_BLOCK;
    const uint32_t most = TILE_PANELS > 1 ? NARROW_ROWS : ROWS; /* panels by themselves: weights are read once */
    const size_t span[1] = {0};
    const tile t = {span, span + 1, p->C, LN_PANEL, (size_t)p->C * LN_PANEL, 0, 0, 0, 0.0f, 0.0f, NULL, NULL,
                    0.0f, 0.0f, HALF_PANELS, 0};
    float *zeros = scratch, *in = scratch + p->C;
    for (uint32_t c = 0; c < p->C; c++) zeros[c] = 0.0f;

    for (uint32_t block = blocks, count; first < end; first += count, block--) {
        count = (end - first + block - 1) / block;
        const size_t in_row = p->C + LN_PANEL, out_row = p->O + LN_PANEL; /* equal columns of rows: many cache sets */
        const size_t in_step = count * in_row + LN_PANEL, out_step = count * out_row + LN_PANEL;
        float *out = in + points * in_step;
        const float *at[LN_WINO_POINTS];

        for (uint32_t i = 0; i < count; i++) {
            find_inputs(p, m, first + i, x, zeros, at);
            if (m == 2) inputs_to_points(2, at, p->C, in + i * in_row, in_step);
#ifdef OWN_TRANSFORMS
            else inputs_to_points_4(at, p->C, in + i * in_row, in_step);
#else
            else inputs_to_points(4, at, p->C, in + i * in_row, in_step);
#endif
        }
        uint32_t rows[LN_WINO_BLOCK], groups = 0; /* of each register tile: nearly one size */
        for (uint32_t i = 0; i < count; i += rows[groups++]) {
            const uint32_t tiles = (count - i + most - 1) / most;
            rows[groups] = (count - i + tiles - 1) / tiles;
        }
        for (uint32_t point = 0; point < points; point++) {
            const float *row = in + point * in_step;
            const float *w = p->weights + point * weights_step + (size_t)panel * p->C * LN_PANEL;
            float *to = out + point * out_step + panel * LN_PANEL;
            for (uint32_t g = 0; g < groups; to += rows[g++] * out_row) {
                const uint32_t n = rows[g];
                for (uint32_t k = 0; k < n; k++, row += in_row) at[k] = row;
                if (TILE_PANELS > 1) NARROW_f32[n - 1](&t, at, w, to, out_row, panel_end - panel);
                else if (HALF_PANELS) WIDE_f32[n - 1](&t, at, w, to, out_row, 2 * (panel_end - panel));
                else
                    for (int j = 0; j < PANEL_VECTORS; j += COLUMNS)
                        WIDE_f32[n - 1](&t, at, w + j * LANES, to + j * LANES, out_row, panel_end - panel);
            }
        }
        for (uint32_t i = 0; i < count; i++)
            put_outputs(p, m, first + i, out + i * out_row, out_step, y, panel * LN_PANEL, panel_end * LN_PANEL);
    }
}

INLINE void wino_weights_of(const int m, const uint8_t *w, uint32_t f16, uint32_t C, uint32_t O, float *out,
                            uint32_t panel, uint32_t panel_end)
{
    const int n = m + 2;
    const size_t step = (size_t)ln_wino_step(C, O);
    (void)f16; /* where halves have been widened */
    for (uint32_t q = panel; q < panel_end; q++)
        for (uint32_t c = 0; c < C; c++)
            for (int j = 0; j < LN_PANEL; j += LANES) {
                vf h[LN_WINO_POINTS], g[3], t[6];
                UNROLL_LONG
                for (int v = 0; v < 3; v++) {
                    UNROLL
                    for (int u = 0; u < 3; u++) {
                        const size_t k = (size_t)q * (9 * C + 1) + 1 + (size_t)(u * 3 + v) * C + c;
                        const size_t at = k * LN_PANEL + (size_t)j;
#ifdef LOADH
                        if (f16) {
                            g[u] = LOADH((const uint16_t *)(const void *)w + at);
                            continue;
                        }
#endif
                        g[u] = LOAD((const float *)(const void *)w + at);
                    }
                    weights_to_points(m, g, t);
                    UNROLL
                    for (int i = 0; i < n; i++) h[i * 3 + v] = t[i];
                }
                float *to = out + ((size_t)q * C + c) * LN_PANEL + j;
                UNROLL_LONG
                for (int i = 0; i < n; i++) {
                    weights_to_points(m, h + i * 3, t);
                    UNROLL
                    for (int k = 0; k < n; k++) STORE(to + (size_t)(i * n + k) * step, t[k]);
                }
            }
}

static void wino_weights(uint32_t m, const uint8_t *w, uint32_t f16, uint32_t C, uint32_t O, float *out, uint32_t panel,
                         uint32_t panel_end)
{
    if (m == 2) wino_weights_of(2, w, f16, C, O, out, panel, panel_end);
    else wino_weights_of(4, w, f16, C, O, out, panel, panel_end);
}
