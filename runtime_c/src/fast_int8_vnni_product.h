/* Rows times packed weights with AVX-512 VNNI, for fast_int8_kernels.h: one vector has the sums of a panel, which stay in
 * registers until they are bytes. Sums are arrays with fixed indices: every loop over them is unrolled. */

enum { MOST_ROWS = 12, MOST_PANELS = 4 }; /* that are taken at once */

typedef struct tile8 { /* what a register tile is told */
    const size_t *span, *span_end; /* where in a row its spans of n begin */
    size_t n;
    size_t group;         /* bytes from one group of four k to the next: 4 times the panel's width */
    size_t panel;         /* from one panel to the next */
    const uint8_t *put;   /* the first panel as it is stored */
    const int32_t *bias;  /* of the panels; NULL: as stored */
    uint32_t first, live; /* channel; channels of a panel that is alone */
} tile8;

/* R rows of V panels, whose first spans begin at x[m], to y[m]; w: the first group of four k. */
INLINE void tile8_rows(const tile8 *t, const ln_product8 *p, const int8_t *const *x, const uint8_t *w, int8_t *const *y,
                       const int R, const int V)
{
    const ln_quantum q = p->q;
    __m512i s[MOST_ROWS * MOST_PANELS];
    pv of[MOST_PANELS];
    int rows = R;

    UNROLL
    for (int j = 0; j < V; j++) {
        const uint8_t *from = t->put + j * p->stored;
        of[j] = put_load(t->bias ? (const uint8_t *)(t->bias + j * LN_PANEL) : from, from + t->group);
    }
    UNROLL
    for (int m = 0; m < R; m++) {
        UNROLL
        for (int j = 0; j < V; j++) s[m * V + j] = of[j].bias;
    }
    for (const size_t *span = t->span; span != t->span_end; span++) {
        const size_t end = *span + t->n;
        for (size_t k = *span; k < end; k += 4, w += t->group) {
            UNROLL
            for (int m = 0; m < R; m++) {
                const __m512i four = _mm512_set1_epi32(word_at(x[m] + k));
                UNROLL
                for (int j = 0; j < V; j++)
                    s[m * V + j] = _mm512_dpbusd_epi32(s[m * V + j], four, _mm512_loadu_si512(w + j * t->panel));
            }
        }
    }
    if (p->pool && R % 4 == 0) {
        rows = R / 4;
        UNROLL
        for (int m = 0; m + 3 < R; m += 4) {
            UNROLL
            for (int j = 0; j < V; j++)
                s[m / 4 * V + j] = _mm512_max_epi32(_mm512_max_epi32(s[m * V + j], s[(m + 1) * V + j]),
                                                    _mm512_max_epi32(s[(m + 2) * V + j], s[(m + 3) * V + j]));
        }
    }
    UNROLL
    for (int m = 0; m < R; m++) {
        put_vectors(s + m * V, of, q, y[m] + t->first, V, t->live);
        if (R % 4 == 0 && m + 1 == rows) return;
    }
}

typedef void tile8_fn(const tile8 *t, const ln_product8 *p, const int8_t *const *x, const uint8_t *w, int8_t *const *y);
#define TILES8(T) T(1, 1) T(4, 1) T(12, 1) T(1, 2) T(4, 2) T(8, 2) T(1, 4) T(4, 4) T(6, 4)
#define TILE8(R, V)                                                                                         \
    static void tile8_##R##x##V(const tile8 *t, const ln_product8 *p, const int8_t *const *x, const uint8_t *w, \
                                int8_t *const *y)                                                           \
    {                                                                                                       \
        tile8_rows(t, p, x, w, y, R, V);                                                                    \
    }
TILES8(TILE8)
#undef TILE8
#define TILE8(R, V) [(V) / 2][R] = tile8_##R##x##V,
static tile8_fn *const TILE[MOST_PANELS / 2 + 1][MOST_ROWS + 1] = {TILES8(TILE8)}; /* of 1, 2 or 4 panels */
#undef TILE8

static void product8(const ln_product8 *p, const uint8_t *w, const void *x, int8_t *y, uint32_t row, uint32_t row_end,
                     uint32_t panel, uint32_t panel_end)
{
    const uint32_t spans = p->n_u * p->n_v;
    size_t span[LN_BYTE_SPANS];
    const int8_t *at[MOST_ROWS];
    int8_t *to[MOST_ROWS];
    tile8 t = {span, span + spans, p->n, 0, 0, NULL, NULL, 0, 0};

    for (uint32_t i = 0; i < spans; i++) span[i] = i / p->n_v * p->step_u + i % p->n_v * p->step_v;
    t.panel = p->weights ? (size_t)LN_PANEL * spans * p->n : p->stored;
    for (uint32_t q = panel, wide; q < panel_end; q += wide) {
        const uint32_t full = p->O / LN_PANEL > q ? p->O / LN_PANEL - q : 0, left = panel_end - q;
        wide = full >= 4 && left >= 4 ? 4 : full >= 2 && left >= 2 ? 2 : 1;
        t.first = q * LN_PANEL;
        t.live = p->O - t.first < LN_PANEL ? p->O - t.first : LN_PANEL;
        t.group = 4 * (size_t)((t.live + 3) & ~3u);
        t.put = w + q * p->stored;
        t.bias = p->bias ? p->bias + t.first : NULL;
        const uint8_t *weights = p->weights ? (const uint8_t *)p->weights + q * t.panel : t.put + 2 * t.group;
        for (uint32_t r = row, n; r < row_end; r += n) {
            n = row_end - r < MOST_ROWS ? row_end - r : MOST_ROWS;
            find_rows8(p, x, r, n, at, y, to);
            for (uint32_t m = 0, some; m < n; m += some) {
                for (some = n - m; TILE[wide / 2][some] == NULL || (p->pool && some % 4);) some--;
                TILE[wide / 2][some](&t, p, at + m, weights, to + (p->pool ? m / 4 : m));
            }
        }
    }
}
