/* Rows times panels: walks rows and panels, and gives the register tiles their work. Part of fast_kernels.h. */

/* Where the spans of `count` rows from `row` on begin. */
INLINE void find_rows(const ln_product *p, const float *x, uint32_t row, uint32_t count, const float **at)
{
    const uint32_t first = p->pool ? row / 4 : row;
    const uint32_t i = first < p->Wo ? 0 : first / p->Wo;
    uint32_t j = first - i * p->Wo;
    const size_t down = p->pool ? 2 * p->step_i : p->step_i, right = p->pool ? 2 * p->step_j : p->step_j;
    const float *line = x + i * down, *here = line + j * right;

    if (!p->pool && j + count <= p->Wo) { /* in one line */
        for (uint32_t m = 0; m < count; m++, here += right) at[m] = here;
        return;
    }
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

/* t: rows of one or some panels, `step` floats from one to the next, which are channels from o on; finished where
 * clamping was not all; of each four the largest, where they are pooled; to y[to]. */
static void put_rows(const ln_product *p, float *t, size_t step, uint32_t rows, float *y, size_t to, uint32_t o,
                     uint32_t live)
{
    const ln_finish *f = &p->finish;
    activate(f->act, f->alpha, t, (size_t)rows * step);
    if (p->pool) {
        if (f->slopes) prelu_rows(f->slopes + o, t, step, rows, live);
        for (uint32_t m = 0; m < rows; m += 4)
            for (size_t j = 0; j < step; j += LANES) {
                const float *s = t + m * step + j;
                const vf a = larger(LOAD(s), LOAD(s + step)), b = larger(LOAD(s + 2 * step), LOAD(s + 3 * step));
                STORE(t + m / 4 * step + j, larger(a, b));
            }
        rows /= 4;
    }
    for (uint32_t j = 0; j < live; j += LANES) {
        const vf slope = f->slopes && !p->pool ? load_some(f->slopes + o + j, live - j) : SPLAT(1.0f);
        const float *other = f->other ? f->other + to + j : NULL;
        finish_rows(f, t + j, step, slope, other, y + to + j, p->y_step, rows, live - j);
    }
}

#if COLUMNS <= 2
#define PAIR_f32 WIDE_f32
#define PAIR_f16 WIDE_f16
#endif

/* Is what the tile gives what is stored? */
INLINE int stored_as_is(const ln_product *p, uint32_t live)
{
    const ln_finish *f = &p->finish;
    const uint32_t whole = f->slopes || f->other ? COLUMNS * LANES : LANES;
    if (!FINISHING && whole > LANES) return 0;
    return (POOL_TILES || !p->pool) && live % whole == 0 && f->act == LN_ACT_NONE;
}

/* The most rows of a tile that makes so many channels. */
INLINE uint32_t most_rows(uint32_t channels)
{
    return channels <= LANES ? NARROW_ROWS : channels <= 2 * LANES && COLUMNS > 2 ? PAIR_ROWS : ROWS;
}

/* From a row of the product to the next, where that is always the same: floats; else 0. */
INLINE size_t even_step(const ln_product *p)
{
    if (p->pool) return 0;
    return p->Wo == 1 ? p->step_i : p->step_i == p->Wo * p->step_j ? p->step_j : 0;
}

/* `rows` rows of one panel, of channels from o on, to y[to], or of some panels, which then are full, and are not more
 * than a tile has where they are not stored as they are. With t->down it is `strips` times so many rows, stored as they
 * are, of no more panels than a tile has. Columns go in groups of COLUMNS vectors, the last perhaps in pairs or one by
 * one. */
static void one_tile(const ln_product *p, tile *t, const float *const *at, const uint8_t *w, uint32_t rows,
                     uint32_t strips, float *y, size_t to, uint32_t o, uint32_t panels, uint32_t live)
{
    float kept[LN_MOST_ROWS * TILE_PANELS * LN_PANEL];
    const int plain = stored_as_is(p, live);
    float *out = plain ? y + to : kept;
    const size_t step = plain ? p->y_step : panels * LN_PANEL, end = panels > 1 ? TILE_PANELS * LN_PANEL : t->width;

    for (uint32_t j = 0; j < end;) {
        const int wide = end - j > (COLUMNS - 1) * LANES && rows <= ROWS;
        const int pair = COLUMNS > 2 && !wide && end - j > LANES && rows <= PAIR_ROWS;
        const int halves = HALF_PANELS && wide && end == LN_PANEL && t->down == 0;
        const uint32_t each = wide ? (panels + TILE_PANELS - 1) / TILE_PANELS : panels;
        const uint32_t times = t->down ? strips : halves ? 2 * each : each;
        if (HALF_PANELS) t->halves = (uint32_t)halves;
        if (POOL_TILES) t->pool = plain ? p->pool : 0;
        if (FINISHING) {
            t->slopes = plain && p->finish.slopes ? p->finish.slopes + o + j : NULL;
            t->other = plain && p->finish.other ? p->finish.other + to + j : NULL;
        }
#if HALVES
        if (p->f16) {
            const uint16_t *half = (const uint16_t *)(const void *)w + j;
            (wide ? WIDE_f16 : pair ? PAIR_f16 : NARROW_f16)[rows - 1](t, at, half, out + j, step, times);
        } else
#endif
        {
            const float *single = (const float *)(const void *)w + j;
            (wide ? WIDE_f32 : pair ? PAIR_f32 : NARROW_f32)[rows - 1](t, at, single, out + j, step, times);
        }
        j += halves ? LN_PANEL : wide ? COLUMNS * LANES : pair ? 2 * LANES : LANES;
    }
    if (!plain) put_rows(p, kept, step, rows, y, to, o, live);
}

static size_t panel_bytes(const ln_product *p) /* of a panel of 16 */
{
    return ((size_t)p->K + 1) * LN_PANEL * (p->f16 ? 2 : 4);
}

/* The rows at[], and with t->down those of all `strips`, times `channels` channels from panel q on, to y[to]. Full
 * panels go together: all if they are stored as they are, else, or with t->down, as many as a tile has. */
INLINE void some_panels(const ln_product *p, tile *t, const float *const *at, const uint8_t *w, uint32_t rows,
                        uint32_t strips, float *y, size_t to, uint32_t q, uint32_t channels)
{
    const size_t each = panel_bytes(p);
    const int as_is = stored_as_is(p, LN_PANEL) && t->down == 0;
    w += q * each;
    for (uint32_t o = 0, n; o < channels; o += n * LN_PANEL, w += n * each) {
        const uint32_t whole = (channels - o) / LN_PANEL / TILE_PANELS * TILE_PANELS;
        n = whole == 0 ? 1 : as_is ? whole : TILE_PANELS;
        const uint32_t live = channels - o < n * LN_PANEL ? channels - o : n * LN_PANEL;
        t->width = n > 1 ? LN_PANEL : (live + 3) / 4 * 4;
        one_tile(p, t, at, w, rows, strips, y, to + o, q * LN_PANEL + o, n, live);
    }
}

/* As some_panels: `strips` times `rows` rows, the first at x, a row `step` floats from the other. */
static void some_rows(const ln_product *p, tile *t, const float *x, size_t step, const uint8_t *w, uint32_t rows,
                      uint32_t strips, float *y, size_t to, uint32_t q, uint32_t channels)
{
    const float *at[LN_MOST_ROWS];
    const uint32_t each = stored_as_is(p, channels) ? strips : 1;
    t->down = each > 1 ? rows * step : 0;
    for (; strips; strips -= each, to += rows * p->y_step) {
        for (uint32_t m = 0; m < rows; m++, x += step) at[m] = x;
        some_panels(p, t, at, w, rows, each, y, to, q, channels);
    }
    t->down = 0;
}

/* As some_panels: `count` rows in tiles of nearly one size, up to `most` rows; the first row at x, from one to the next
 * `step` floats. */
static void even_rows(const ln_product *p, tile *t, const float *x, size_t step, const uint8_t *w, uint32_t count,
                      uint32_t most, float *y, size_t to, uint32_t q, uint32_t channels)
{
    const uint32_t tiles = (count + most - 1) / most, least = count / tiles, larger_ones = count % tiles;
    const uint32_t rows = larger_ones * (least + 1);
    some_rows(p, t, x, step, w, least + 1, larger_ones, y, to, q, channels);
    some_rows(p, t, x + rows * step, step, w, least, tiles - larger_ones, y, to + rows * p->y_step, q, channels);
}

INLINE int clamps(const ln_finish *f)
{
    return (f->lo != -LN_INFINITE ? CLAMP_LOW : 0) | (f->hi != LN_INFINITE ? CLAMP_HIGH : 0);
}

/* The tile of a full panel; span: room for the spans. */
static tile tile_of(const ln_product *p, size_t *span)
{
    const size_t panel = ((size_t)p->K + 1) * LN_PANEL;
    const uint32_t spans = p->n_u * p->n_v;
    for (uint32_t i = 0; i < spans; i++) span[i] = i / p->n_v * p->step_u + i % p->n_v * p->step_v;
    return (tile){span, span + spans, p->n, LN_PANEL, panel, 0, 1, clamps(&p->finish), p->finish.lo,
                  p->finish.hi, NULL, NULL, p->finish.sum_lo, p->finish.sum_hi, 0, 0};
}

/* The order of the loops: weights that fit the nearest cache are read anew for each few rows; larger ones, and where
 * rows are evenly apart all, are read once for as many rows as fit the second cache. Where a sum has few values, as that
 * of an image's three colours, to begin a tile is a good part of its time: a line of the image is then one call. */
enum { NEAR_BYTES = 96 << 10, FAR_BYTES = 256 << 10, FEW_VALUES = 80 };

static void product(const ln_product *p, const uint8_t *w, const float *x, float *y, uint32_t row, uint32_t row_end,
                    uint32_t panel, uint32_t panel_end)
{
    const uint32_t unit = p->pool ? 4 : 1; /* rows that stay together */
    const uint32_t end_channel = panel_end * LN_PANEL < p->O ? panel_end * LN_PANEL : p->O;
    const uint32_t channels = end_channel - panel * LN_PANEL;
    const uint32_t most = most_rows(channels) / unit * unit;
    const size_t even = even_step(p);
    const size_t row_bytes = even ? 4 * even : 2 * (size_t)p->K + 1; /* windows overlap: a guess */
    const int few = FAR_BYTES / row_bytes <= most; /* rows fit the second cache */
    const int near = few || (!even && panel_bytes(p) * (panel_end - panel) <= NEAR_BYTES);
    const uint32_t block = near ? row_end - row : (uint32_t)(FAR_BYTES / row_bytes) / most * most;
    const uint32_t together = near ? channels : TILE_PANELS * LN_PANEL;
    const int by_line = !even && unit == 1 && p->K <= FEW_VALUES && p->Wo >= most;
    size_t span[LN_MOST_SPANS];
    tile t = tile_of(p, span);
    const float *at[LN_MOST_ROWS];

    for (uint32_t begin = row, end; begin < row_end; begin = end) {
        end = row_end - begin < block ? row_end : begin + block;
        const uint32_t units = (end - begin) / unit, tiles = (units + most / unit - 1) / (most / unit);
        const uint32_t least = units / tiles, larger_ones = units % tiles; /* tiles of nearly one size */
        for (uint32_t o = 0, some; o < channels; o += some) {
            some = channels - o < together ? channels - o : together;
            const uint32_t q = panel + o / LN_PANEL;
            size_t to = (size_t)(begin / unit) * p->y_step + panel * LN_PANEL + o;
            if (even && !near) {
                even_rows(p, &t, x + begin * even, even, w, end - begin, most, y, to, q, some);
                continue;
            }
            if (by_line) {
                for (uint32_t r = begin, n; r < end; r += n, to += n * p->y_step) {
                    const uint32_t i = r / p->Wo, j = r - i * p->Wo;
                    n = end - r < p->Wo - j ? end - r : p->Wo - j;
                    even_rows(p, &t, x + i * p->step_i + j * p->step_j, p->step_j, w, n, most, y, to, q, some);
                }
                continue;
            }
            for (uint32_t r = begin, n, k = 0; k < tiles; k++, r += n, to += n / unit * p->y_step) {
                n = (least + (k < larger_ones)) * unit;
                find_rows(p, x, r, n, at);
                some_panels(p, &t, at, w, n, 1, y, to, q, some);
            }
        }
    }
}

static void vector(const ln_product *p, const uint8_t *w, const float *x, float *y, uint32_t panel,
                   uint32_t panel_end)
{
    const size_t each = panel_bytes(p);
    for (uint32_t q = panel, n; q < panel_end; q += n) {
        const uint32_t o = q * LN_PANEL;
        n = q + VECTOR_PANELS <= panel_end && p->O - o >= VECTOR_PANELS * LN_PANEL ? VECTOR_PANELS : 1;
        const uint32_t live = p->O - o < n * LN_PANEL ? p->O - o : n * LN_PANEL;
        const uint8_t *wq = w + q * each;
        if (live + 3 < LN_PANEL) { /* a narrow panel */
            size_t span[1];
            tile t = tile_of(p, span);
            t.width = (live + 3) / 4 * 4;
            one_tile(p, &t, &x, wq, 1, 1, y, o, o, 1, live);
            continue;
        }
        float kept[VECTOR_PANELS * LN_PANEL];
        const int plain = live >= LN_PANEL && stored_as_is(p, live) && !p->finish.slopes && !p->finish.other;
        float *to = plain ? y + o : kept;
#if HALVES
        if (p->f16) vector_panels_f16((const uint16_t *)(const void *)wq, 0, x, p->K, to, &p->finish, 1);
        else
#endif
        {
            const float *single = (const float *)(const void *)wq;
            if (n > 1) vector_panels_f32(single, each / sizeof(float), x, p->K, to, &p->finish, VECTOR_PANELS);
            else vector_panels_f32(single, 0, x, p->K, to, &p->finish, 1);
        }
        if (!plain) put_rows(p, kept, n * LN_PANEL, 1, y, o, o, live);
    }
}
