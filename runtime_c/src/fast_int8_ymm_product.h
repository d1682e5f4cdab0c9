/* Rows times packed weights with vectors of 256 bits, for fast_int8_kernels.h: two of them have the sums of a panel, which
 * stay in registers until they are bytes. Sums are arrays with fixed indices: every loop over them is unrolled. Of the set it
 * needs put_tile, and put_half for the first parts of four sums; DOT(s, w, x, half), which may leave the second part alone; and
 * with ONE_ROW8 there is one_row8, for a row whose weights are as they are stored. */

enum {
    SOME_ROWS = 48, MOST_ROWS = 54, /* that are found at once: weights are read once more for those that are left */
    TOGETHER = WIDENS == 2 ? 2 : 4
};

typedef struct tile8 { /* what a register tile is told of a panel; counts are of numbers */
    const size_t *span, *span_end; /* where in a row its spans of n begin */
    size_t n;
    size_t group;                  /* from one group of k to the next: so many times the panel's width */
    const byte *w;
    const uint8_t *bias, *scale;
} tile8;

/* `rows` rows, whose first spans begin at x[0], x[1] ..., to bytes at y, `step` from one to the next; R at a time; with 4,
 * those that are too many can be any, or with pool four make one. half, 1: only the first eight channels. */
INLINE void tiles8(const tile8 *t, const ln_product8 *p, const byte *const *x, int rows, int8_t *y, size_t step,
                   const int R, const int half)
{
    const ln_quantum q = p->q;
    const int pool = R == 4 && p->pool;
    const pv of = put_load(t->bias, t->scale);

    for (;; rows -= R, x += R) {
        const byte *w = t->w;
        va s[6];
        UNROLL
        for (int m = 0; m < R; m++) s[m] = of.bias;
        for (const size_t *span = t->span; span != t->span_end; span++)
            for (size_t k = *span, end = k + t->n; k < end; k += TOGETHER, w += t->group) {
                UNROLL
                for (int m = 0; m < R; m++) s[m] = DOT(s[m], w, SPLAT4(x[m] + k), half);
            }
        if (pool) s[0] = most_of(most_of(s[0], s[1]), most_of(s[2], s[3]));
        const int some = pool ? 1 : R == 4 && rows < R ? rows : R;
        if (half) put_half(s, &of, q, y, step, some);
        else put_tile(s, &of, q, y, step, some, R);
        if (rows <= R) return;
        y += (size_t)some * step;
    }
}

typedef void tiles8_fn(const tile8 *t, const ln_product8 *p, const byte *const *x, int rows, int8_t *y, size_t step);
#define TILES8(name, R, half)                                                                                      \
    static void name(const tile8 *t, const ln_product8 *p, const byte *const *x, int rows, int8_t *y, size_t step) \
    {                                                                                                              \
        tiles8(t, p, x, rows, y, step, R, half);                                                                   \
    }
TILES8(tiles8_6, 6, 0)
TILES8(tiles8_4, 4, 0)
TILES8(tiles8_1, 1, 0)
TILES8(tiles8_half, 4, 1)
#undef TILES8

static void copy8(const int8_t *x, void *y, size_t n);

static void product8(const ln_product8 *p, const uint8_t *w, const void *x, int8_t *y, uint32_t row, uint32_t row_end,
                     uint32_t panel, uint32_t panel_end)
{
    const uint32_t spans = p->n_u * p->n_v, unit = p->pool ? 4 : 1;
    size_t span[LN_BYTE_SPANS];

#ifdef ONE_ROW8
    if (p->weights == NULL) {
        one_row8(p, w, x, y, panel, panel_end);
        return;
    }
#endif
    for (uint32_t i = 0; i < spans; i++) span[i] = i / p->n_v * p->step_u + i % p->n_v * p->step_v;
    y += (size_t)(row / unit) * p->y_step;
    for (uint32_t n; row < row_end; row += n, y += (size_t)(n / unit) * p->y_step) {
        const byte *at[MOST_ROWS + 4];
        n = row_end - row <= MOST_ROWS ? row_end - row : SOME_ROWS;
#if WIDENS
        byte wide[MOST_ROWS * LN_WIDEN8_MOST];
        if (p->bytes) {
            copy8((const int8_t *)x + (size_t)row * p->n, wide, (size_t)n * p->n);
            for (uint32_t m = 0; m < n; m++) at[m] = wide + m * p->n;
        } else
#endif
            find_rows8(p, x, row, n, at, NULL, NULL);
        for (uint32_t m = n; m < n + 4; m++) at[m] = at[n - 1];
        for (uint32_t q = panel; q < panel_end; q++) {
            const uint32_t o = q * LN_PANEL, live = p->O - o < LN_PANEL ? p->O - o : LN_PANEL, width = (live + 3) & ~3u;
            const uint8_t *stored = w + q * p->stored;
            const byte *weights = p->weights ? (const byte *)p->weights + (size_t)o * spans * p->n
                                             : (const byte *)stored + 8 * (size_t)width;
            /* behind a narrow panel, of what follows it */
            const tile8 t = {span, span + spans, p->n, TOGETHER * (size_t)width, weights,
                             p->bias ? (const uint8_t *)(p->bias + o) : stored, stored + 4 * (size_t)width};
            const int direct = live % (LN_PANEL / 2) == 0;
            int8_t kept[MOST_ROWS * LN_PANEL], *to = direct ? y + o : kept;
            const size_t step = direct ? p->y_step : LN_PANEL;
            int left = (int)n;
            const int sixes = live <= LN_PANEL / 2 || p->pool ? 0 : left - left % 6;
            if (sixes) tiles8_6(&t, p, at, sixes, to, step);
            left -= sixes;
            if (left) {
                tiles8_fn *const some = live <= LN_PANEL / 2 ? tiles8_half : left == 1 ? tiles8_1 : tiles8_4;
                some(&t, p, at + sixes, left, to + (size_t)sixes * step, step);
            }
            if (direct) continue;
            for (uint32_t m = 0; m < n / unit; m++) put_some(y + m * p->y_step + o, kept + m * LN_PANEL, live);
        }
    }
}
