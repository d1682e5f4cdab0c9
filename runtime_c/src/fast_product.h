/* Rows times panels: walks rows and panels, and gives the register tiles their work. Part of fast_kernels.h. */

/* Where the spans of `count` rows from `row` on begin. */
INLINE void find_rows(const ln_product *p, const float *x, uint32_t row, uint32_t count, const float **at)
{
    const uint32_t first = p->pool ? row / 4 : row;
    uint32_t j = first % p->Wo;
    const size_t down = p->pool ? 2 * p->step_i : p->step_i, right = p->pool ? 2 * p->step_j : p->step_j;
    const float *line = x + first / p->Wo * down, *here = line + j * right;

    for (uint32_t m = 0; m < count;) {
        if (p->pool) { /* a row of the four: from the tile's first on they come whole */
            at[m] = here;
            at[m + 1] = here + p->step_j;
            at[m + 2] = here + p->step_i;
            at[m + 3] = here + p->step_i + p->step_j;
            m += 4;
        } else {
            at[m++] = here;
        }
        here += right;
        if (++j == p->Wo) {
            j = 0;
            line += down;
            here = line;
        }
    }
}

/* t rows of 16, activated where clamping was not all; of each four the largest, where they are pooled; to y. */
static void put_rows(const ln_product *p, float *t, uint32_t rows, float *y, uint32_t live)
{
    activate(p->finish.act, p->finish.alpha, t, (size_t)rows * LN_PANEL);
    if (p->pool) {
        for (uint32_t m = 0; m < rows; m += 4)
            for (int j = 0; j < LN_PANEL; j += LANES) {
                const float *s = t + m * LN_PANEL + j;
                const vf a = larger(LOAD(s), LOAD(s + LN_PANEL));
                const vf b = larger(LOAD(s + 2 * LN_PANEL), LOAD(s + 3 * LN_PANEL));
                STORE(t + m / 4 * LN_PANEL + j, larger(a, b));
            }
        rows /= 4;
    }
    for (uint32_t m = 0; m < rows; m++, y += p->y_step, t += LN_PANEL)
        for (uint32_t j = 0; j < live; j += LANES) store_some(y + j, LOAD(t + j), live - j);
}

#if COLUMNS <= 2
#define PAIR_f32 WIDE_f32
#define PAIR_f16 WIDE_f16
#endif

/* `rows` rows of one panel to y, its columns in groups of COLUMNS vectors, the last perhaps in pairs or one by one. */
static void one_tile(const ln_product *p, tile *t, const float *const *at, const uint8_t *w, uint32_t rows, float *y,
                     uint32_t live)
{
    float kept[LN_MOST_ROWS * LN_PANEL];
    const int plain = !p->pool && live % LANES == 0 && p->finish.act == LN_ACT_NONE; /* stored is what exists */
    float *to = plain ? y : kept;
    const size_t step = plain ? p->y_step : LN_PANEL;

    for (uint32_t j = 0; j < t->width;) {
        const int wide = t->width - j > (COLUMNS - 1) * LANES, pair = COLUMNS > 2 && t->width - j > LANES;
        if (p->f16)
            (wide ? WIDE_f16 : pair ? PAIR_f16 : NARROW_f16)[rows - 1](t, at, (const uint16_t *)(const void *)w + j, to + j, step);
        else
            (wide ? WIDE_f32 : pair ? PAIR_f32 : NARROW_f32)[rows - 1](t, at, (const float *)(const void *)w + j, to + j, step);
        j += wide ? COLUMNS * LANES : pair ? 2 * LANES : LANES;
    }
    if (!plain) put_rows(p, kept, rows, y, live);
}

static size_t panel_bytes(const ln_product *p) /* of a panel of 16 */
{
    return ((size_t)p->K + 1) * LN_PANEL * (p->f16 ? 2 : 4);
}

/* The order of the loops: weights that fit the nearest cache are read anew for each few rows; larger ones are read once
 * for as many rows as fit the second cache. */
enum { NEAR_BYTES = 96 << 10, FAR_BYTES = 256 << 10 };

static void product(const ln_product *p, const uint8_t *w, const float *x, float *y, uint32_t row, uint32_t row_end,
                    uint32_t panel, uint32_t panel_end)
{
    enum { FOURS = ROWS > 4 ? ROWS / 4 * 4 : ROWS };
    const uint32_t most = p->pool ? FOURS : ROWS;
    const size_t each = panel_bytes(p);
    const size_t row_bytes = 2 * (size_t)p->K + 1; /* windows overlap: a guess */
    uint32_t block = most; /* rows for which a panel is read once */
    if (each * (panel_end - panel) > NEAR_BYTES && FAR_BYTES / row_bytes > most)
        block = (uint32_t)(FAR_BYTES / row_bytes) / most * most;

    tile t = {p->n_u, p->n_v, p->n, p->step_u, p->step_v, LN_PANEL, 1, p->finish.lo, p->finish.hi};
    const float *at[LN_MOST_ROWS];
    for (uint32_t begin = row, end; begin < row_end; begin = end) {
        if (block == most) { /* one tile; as are those that are left, of nearly one size */
            const uint32_t left = row_end - begin, tiles = (left + most - 1) / most;
            end = begin + (left + tiles - 1) / tiles;
            if (p->pool) end = begin + ((end - begin) + 3) / 4 * 4;
        } else {
            end = row_end - begin < block ? row_end : begin + block;
        }
        if (block == most) find_rows(p, x, begin, end - begin, at);
        for (uint32_t q = panel; q < panel_end; q++) {
            const uint32_t o = q * LN_PANEL, live = p->O - o < LN_PANEL ? p->O - o : LN_PANEL;
            t.width = (live + 3) / 4 * 4;
            for (uint32_t r = begin, n; r < end; r += n) {
                const uint32_t rest = end - r, tiles = (rest + most - 1) / most;
                n = (rest + tiles - 1) / tiles;
                if (p->pool) n = (n + 3) / 4 * 4;
                if (block != most) find_rows(p, x, r, n, at);
                one_tile(p, &t, at, w + q * each, n, y + (size_t)(p->pool ? r / 4 : r) * p->y_step + o, live);
            }
        }
    }
}

static void vector(const ln_product *p, const uint8_t *w, const float *x, float *y, uint32_t panel,
                   uint32_t panel_end)
{
    const size_t each = panel_bytes(p);
    for (uint32_t q = panel; q < panel_end; q++) {
        const uint32_t o = q * LN_PANEL, live = p->O - o < LN_PANEL ? p->O - o : LN_PANEL;
        const uint8_t *wq = w + q * each;
        if (live + 3 < LN_PANEL) { /* a narrow panel */
            tile t = {1, 1, p->K, 0, 0, (live + 3) / 4 * 4, 1, p->finish.lo, p->finish.hi};
            one_tile(p, &t, &x, wq, 1, y + o, live);
            continue;
        }
        float kept[LN_PANEL];
        const int plain = live == LN_PANEL && p->finish.act == LN_ACT_NONE;
        float *to = plain ? y + o : kept;
        if (p->f16) vector_panel_f16((const uint16_t *)(const void *)wq, x, p->K, to, &p->finish);
        else vector_panel_f32((const float *)(const void *)wq, x, p->K, to, &p->finish);
        if (!plain) put_rows(p, kept, 1, y + o, live);
    }
}
