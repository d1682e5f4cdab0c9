/* The register tiles of fast_kernels.h, which includes this file once for each type of stored weight: no include guard.
 *
 *     y[m][j] = min(max(bias[j] + sum over the spans, over k, of x[m][k] * w[k][j], lo), hi)
 *
 * for m < R rows, whose first spans begin at x[m], and V vectors of columns; then what is left of ln_finish; `times`
 * tiles, side by side or one below the other: to begin one costs less than to be called. Vectors are always stored whole, and read
 * whole: past the end of a narrow panel they see the weights of the next k, or the program section, which ends no file
 * before 128 more bytes; those lanes are dropped later. */

#define COLUMN(j) ((j) / PANEL_VECTORS * t->panel + (j) % PANEL_VECTORS * LANES) /* of vector j, in the weights */

INLINE void NAMED(tile)(const tile *t, const float *const *x, const WEIGHT *panel, float *y, size_t y_step,
                        uint32_t times, const int R, const int V)
{
    const int panels = V > PANEL_VECTORS ? V / PANEL_VECTORS : 1;
    /* known where the panel is full: panels side by side are, and one whose last vector exists */
    const size_t width = V > PANEL_VECTORS || (LANES == 4 && V == PANEL_VECTORS) ? LN_PANEL : t->width;
    const int finishing = FINISHING && V == COLUMNS;
    const float *slopes = finishing ? t->slopes : NULL, *other = finishing ? t->other : NULL;
    const size_t to_panel = t->down ? 0 : (size_t)panels * t->panel, to_column = t->down ? 0 : (size_t)panels * LN_PANEL;
    const size_t half = HALF_PANELS && t->halves ? V * LANES : 0; /* tiles with an odd number left end a panel */
    const size_t to_y = t->down ? (size_t)R * y_step : half ? half : to_column;
    for (size_t below = 0; times;
         times--, panel += half && times % 2 ? half : to_panel - half, y += to_y, below += t->down) {
        const WEIGHT *w = panel;
        vf s[LN_MOST_ROWS * 4];

#ifdef BY_LANE
        const WEIGHT *first = t->bias ? w : (const WEIGHT *)(const void *)NO_BIAS;
        UNROLL
        for (int m = 0; m < R; m++) { /* a pair of loads is less than two moves */
            UNROLL
            for (int j = 0; j < V; j++) s[m * V + j] = LOADW(first + j * LANES);
            STEP(first, 0);
        }
#else
        UNROLL
        for (int j = 0; j < V; j++) {
            const vf first = t->bias ? LOADW(w + COLUMN(j)) : SPLAT(0.0f);
            UNROLL
            for (int m = 0; m < R; m++) s[m * V + j] = first;
        }
#endif
        if (t->bias) w += width;
        float *to = y;
        UNROLL
        for (int m = 0; FETCHES && m < R; m++) { /* to write far away in small pieces is as slow as to read there */
            UNROLL
            for (int j = 0; j < V; j += 16 / LANES > 1 ? 16 / LANES : 1) FETCH(to + j * LANES);
            STEP(to, y_step);
        }

        for (const size_t *span = t->span; span != t->span_end; span++) {
            size_t k = *span + below;
            const size_t end = k + t->n;
#ifdef BY_LANE
            for (const size_t last = end - t->n % LANES; k != last; k += LANES) {
                vf a[LN_MOST_ROWS], b[4];
                UNROLL
                for (int m = 0; m < R; m++) a[m] = LOAD(x[m] + k);
                UNROLL
                for (int i = 0; i < LANES; i++) {
                    UNROLL
                    for (int j = 0; j < V; j++) b[j] = LOADW(w + (size_t)i * width + j * LANES);
                    UNROLL
                    for (int m = 0; m < R; m++) {
                        UNROLL
                        for (int j = 0; j < V; j++) s[m * V + j] = MADD(b[j], SPLAT(a[m][i]), s[m * V + j]);
                    }
                }
                STEP(w, LANES * width);
            }
#endif
            if (V == 1) /* leaves registers for four steps at once: a row's address serves four */
                for (; k + 4 <= end; k += 4, w += 4 * width) {
                    const vf w0 = LOADW(w), w1 = LOADW(w + width);
                    const vf w2 = LOADW(w + 2 * width), w3 = LOADW(w + 3 * width);
                    UNROLL
                    for (int i = 0; i < (int)sizeof *w; i++) FETCH((const uint8_t *)w + FETCH_AHEAD + 64 * i);
                    UNROLL
                    for (int m = 0; m < R; m++) {
                        const float *a = x[m] + k;
                        s[m] = MADD(w0, SPLAT(a[0]), s[m]);
                        s[m] = MADD(w1, SPLAT(a[1]), s[m]);
                        s[m] = MADD(w2, SPLAT(a[2]), s[m]);
                        s[m] = MADD(w3, SPLAT(a[3]), s[m]);
                    }
                }
            for (; k < end; k++, w += width) {
                vf b[4];
                if (V > 1) FETCH((const uint8_t *)w + FETCH_AHEAD);
                if (V > PANEL_VECTORS) FETCH((const uint8_t *)(w + t->panel) + FETCH_AHEAD);
                UNROLL
                for (int j = 0; j < V; j++) b[j] = LOADW(w + COLUMN(j));
                UNROLL
                for (int m = 0; m < R; m++) {
                    const vf a = SPLAT(x[m][k]);
                    UNROLL
                    for (int j = 0; j < V; j++) s[m * V + j] = MADD(b[j], a, s[m * V + j]);
                }
            }
        }

#if POOL_TILES
        if (R == 4 && t->pool) {
            UNROLL
            for (int j = 0; j < V; j++) {
                const vf v = larger(larger(s[j], s[V + j]), larger(s[2 * V + j], s[3 * V + j]));
                STORE(y + j * LANES, BELOW(SPLAT(t->hi), ABOVE(SPLAT(t->lo), v)));
            }
            continue;
        }
#endif
        if (t->clamped & CLAMP_LOW) {
            const vf lo = SPLAT(t->lo);
            UNROLL
            for (int i = 0; i < R * V; i++) s[i] = ABOVE(lo, s[i]);
        }
        if (t->clamped & CLAMP_HIGH) {
            const vf hi = SPLAT(t->hi);
            UNROLL
            for (int i = 0; i < R * V; i++) s[i] = BELOW(hi, s[i]);
        }
        if (slopes) {
            UNROLL
            for (int j = 0; j < V; j++) {
                const vf slope = LOAD(slopes + j * LANES);
                UNROLL
                for (int m = 0; m < R; m++) s[m * V + j] = PRELU(s[m * V + j], slope);
            }
            slopes += to_column;
        }
        if (other) {
            const vf lo = SPLAT(t->sum_lo), hi = SPLAT(t->sum_hi);
            const float *from = other;
            UNROLL
            for (int m = 0; m < R; m++) {
                UNROLL
                for (int j = 0; j < V; j++) {
                    const vf sum = s[m * V + j] + LOAD(from + j * LANES);
                    s[m * V + j] = BELOW(hi, ABOVE(lo, sum));
                }
                STEP(from, y_step);
            }
            other += to_y;
        }
        to = y;
        UNROLL
        for (int m = 0; m < R; m++) {
            UNROLL
            for (int j = 0; j < V; j++) STORE(to + j * LANES, s[m * V + j]);
            STEP(to, y_step);
        }
    }
}

typedef void NAMED(tile_of)(const tile *t, const float *const *x, const WEIGHT *w, float *y, size_t y_step,
                            uint32_t times);

#define TILE(R, V)                                                                                                    \
    static void NAMED(tile_##R##x##V)(const tile *t, const float *const *x, const WEIGHT *w, float *y, size_t y_step, \
                                      uint32_t times)                                                                 \
    {                                                                                                                 \
        NAMED(tile)(t, x, w, y, y_step, times, R, V);                                                                 \
    }
TILES(TILE, COLUMNS)
NARROW_TILES(TILE, 1)
#if COLUMNS > 2
PAIR_TILES(TILE, 2)
#endif
#undef TILE

/* tile number has R rows */
#define TILE(R, V) NAMED(tile_##R##x##V),
static NAMED(tile_of) *const NAMED(WIDE)[] = {TILES(TILE, COLUMNS)};
static NAMED(tile_of) *const NAMED(NARROW)[] = {NARROW_TILES(TILE, 1)};
#if COLUMNS > 2
static NAMED(tile_of) *const NAMED(PAIR)[] = {PAIR_TILES(TILE, 2)};
#endif
#undef TILE
#undef COLUMN

/* y[j] = clamp(bias[j] + sum_k x[k] w[k][j]) for one row and P panels of 16, `panel` weights apart. Each sum is made in
 * PARTS along k: chains enough to hide the latency of a multiply-add. */
enum { NAMED(PARTS) = LANES == 16 ? 2 : 8 / PANEL_VECTORS };

INLINE void NAMED(vector_panels)(const WEIGHT *w, size_t panel, const float *x, uint32_t K, float *y, const ln_finish *f,
                                 const int P)
{
    enum { PARTS = NAMED(PARTS), V = PANEL_VECTORS };
    vf s[VECTOR_PANELS * PARTS * V];

    UNROLL
    for (int i = 0; i < P * PARTS * V; i++) s[i] = SPLAT(0.0f);
    UNROLL
    for (int p = 0; p < P; p++) {
        UNROLL
        for (int j = 0; j < V; j++) s[p * PARTS * V + j] = LOADW(w + p * panel + j * LANES);
    }
    w += LN_PANEL;
    uint32_t k = 0;
#ifdef BY_LANE
    for (; k + LANES <= K; k += LANES, w += LANES * LN_PANEL) {
        const vf a = LOAD(x + k);
        UNROLL
        for (int i = 0; i < LANES; i++) {
            UNROLL
            for (int j = 0; j < V; j++)
                s[i % PARTS * V + j] = MADD(LOADW(w + i * LN_PANEL + j * LANES), SPLAT(a[i]), s[i % PARTS * V + j]);
        }
    }
#endif
    for (; k + PARTS <= K; k += PARTS, w += PARTS * LN_PANEL) {
        UNROLL
        for (int i = 0; i < PARTS; i++) {
            const vf a = SPLAT(x[k + (uint32_t)i]);
            UNROLL
            for (int p = 0; p < P; p++) {
                UNROLL
                for (int j = 0; j < V; j++) {
                    const int to = (p * PARTS + i) * V + j;
                    s[to] = MADD(LOADW(w + p * panel + i * LN_PANEL + j * LANES), a, s[to]);
                }
            }
        }
    }
    for (; k < K; k++, w += LN_PANEL) {
        UNROLL
        for (int p = 0; p < P; p++) {
            UNROLL
            for (int j = 0; j < V; j++)
                s[p * PARTS * V + j] = MADD(LOADW(w + p * panel + j * LANES), SPLAT(x[k]), s[p * PARTS * V + j]);
        }
    }
    UNROLL
    for (int p = 0; p < P; p++) {
        vf *sum = s + p * PARTS * V;
        UNROLL
        for (int i = 0; PARTS > 4 && i < 4 * V; i++) sum[i] += sum[i + 4 * V];
        UNROLL
        for (int i = 0; PARTS > 2 && i < 2 * V; i++) sum[i] += sum[i + 2 * V];
        UNROLL
        for (int i = 0; i < V; i++) sum[i] += sum[i + V];
        UNROLL
        for (int j = 0; j < V; j++)
            STORE(y + p * LN_PANEL + j * LANES, BELOW(SPLAT(f->hi), ABOVE(SPLAT(f->lo), sum[j])));
    }
}
