/* Depthwise convolution, alone or as one with the product that makes its input. Part of fast_kernels.h.
 *
 * Channels are worked on by two panels of 16, one pair after another, and the image of a pair by lines. Lines, with a
 * frame of zeros around them so that a window sees no edge, wait in a ring about as large as the nearest cache: they
 * are copied there from x, or made there by the product, and then the window moves over them. What a product makes for
 * a depthwise convolution so never goes to memory. */

#ifndef POSITIONS
#define POSITIONS 8 /* side by side: as many sums as hide the latency of a multiply-add */
#endif

/* Of windows that are five taps wide, tiles of some sizes only, which lie over one another where they do not fit. Sums, a
 * row of taps and a pixel have to be registers. */
#if POSITIONS == 8 || defined(FIVES_OF_8)
#define FIVES_1(T, SW, KW, L) T(4, SW, KW, L) T(7, SW, KW, L) T(8, SW, KW, L)
#define FIVES_2 FIVES_1
#else
#define FIVES_1(T, SW, KW, L) T(4, SW, KW, L)
#define FIVES_2(T, SW, KW, L)
#endif
enum {
    MOST_POSITIONS = 8,
    FAR_FLOATS = 1 << 15 /* an output of so many is not in the nearest cache */
};

typedef struct window_taps { /* what a tile is told */
    const float *line[LN_MOST_LINES + 1]; /* under each row of taps, for the first position of a line; one more for two */
    int32_t kh, kw;
    size_t right, next; /* floats from tap to tap, and from position to position */
    size_t each;        /* weights of a panel */
    size_t down;        /* floats of y from a line to the next, where two are made at once */
    /* a line: so many tiles of `larger` positions, then, from `begin` on, so many of `size` */
    uint32_t larger_ones, larger, begin, others, size;
    int clamped;        /* as in a tile */
    float lo, hi;
    const float *slopes; /* of the first channel, as ln_finish has them; only where FINISHING says so */
} window_taps;

#if defined(__clang__)
#define UNROLL_PIXELS UNROLL
#else
#define UNROLL_PIXELS _Pragma("GCC unroll 20") /* 7 positions of stride 2 beside 5 taps */
#endif

/* s[l * R + m] += what the taps of line l see of a line of the image at position m of R, for L lines; two positions are
 * SW pixels apart. taps: for each of the L lines its KW over this line of the image, or NULL. */
INLINE void row_of_taps(const float *x, const vf *const *taps, vf *s, const int R, const int SW, const int KW,
                        const int L)
{
    UNROLL_PIXELS
    for (int e = 0; e < (R - 1) * SW + KW; e++) { /* a pixel goes to all positions that see it */
        const vf pixel = LOAD(x + e * LN_PIXEL);
        UNROLL
        for (int l = 0; l < L; l++) {
            UNROLL
            for (int v = KW - 1; v >= 0; v--)
                if (taps[l] && e >= v && (e - v) % SW == 0 && (e - v) / SW < R)
                    s[l * R + (e - v) / SW] = MADD(taps[l][v], pixel, s[l * R + (e - v) / SW]);
        }
    }
}

/* `times` times R positions, of n channels, from `at` floats behind the beginning of the lines on; w: the weights of the
 * first panel, of each panel bias, then taps, LN_PANEL apart. SW: pixels from position to position of a window without
 * gaps, of KW 3: 3 x 3 taps, or KW 5: rows of 5; else 0. L: lines, 2 only where the lower one is one pixel below. */
INLINE void depthwise_tile(const window_taps *t, size_t at, const float *w, float *y, size_t y_step, uint32_t times,
                           uint32_t n, const int R, const int SW, const int KW, const int L)
{
    const vf lo = SPLAT(t->lo), hi = SPLAT(t->hi);
    for (uint32_t c = 0; c < n; c += LANES, w += c % LN_PANEL ? LANES : t->each - (LN_PANEL - LANES)) {
        const vf bias = LOAD(w), slope = FINISHING && t->slopes ? LOAD(t->slopes + c) : SPLAT(1.0f);
        size_t from = at + c;
        float *to = y + c;
        vf tap[9];
        if (KW == 3) {
            UNROLL
            for (int v = 0; v < 9; v++) tap[v] = LOAD(w + (1 + v) * LN_PANEL);
        }
        for (uint32_t k = times; k; k--, from += (size_t)R * t->next) {
            vf s[2 * MOST_POSITIONS];
            UNROLL
            for (int m = 0; m < L * R; m++) s[m] = bias;
            if (KW == 3) {
                UNROLL
                for (int u = 0; u < 2 + L; u++) {
                    const vf *const taps[2] = {u < 3 ? tap + 3 * u : NULL, u > 0 ? tap + 3 * (u - 1) : NULL};
                    row_of_taps(t->line[u] + from, taps, s, R, SW, 3, L);
                    UNROLL
                    for (int m = 0; m < L * R; m++) IN_ORDER(s[m]); /* then the next line is read: not all fit the registers */
                }
            } else if (KW == 5) {
                const float *row = w + LN_PANEL;
                for (int32_t u = 0; u < t->kh; u++, row += 5 * LN_PANEL) {
                    const vf *const taps[1] = {tap};
                    const float *x = t->line[u];
                    STEP(x, from); /* one address, not one for each pixel on the stack */
                    UNROLL
                    for (int v = 0; v < 5; v++) tap[v] = LOAD(row + v * LN_PANEL);
                    row_of_taps(x, taps, s, R, SW, 5, 1);
                }
            } else {
                const float *next_tap = w + LN_PANEL;
                for (int32_t u = 0; u < t->kh; u++) {
                    const float *x = t->line[u] + from;
                    for (int32_t v = 0; v < t->kw; v++, next_tap += LN_PANEL, x += t->right) {
                        const vf any = LOAD(next_tap);
                        UNROLL
                        for (int m = 0; m < R; m++) s[m] = MADD(any, LOAD(x + (size_t)m * t->next), s[m]);
                    }
                }
            }
            if (t->clamped & CLAMP_LOW) {
                UNROLL
                for (int m = 0; m < L * R; m++) s[m] = ABOVE(lo, s[m]);
            }
            if (t->clamped & CLAMP_HIGH) {
                UNROLL
                for (int m = 0; m < L * R; m++) s[m] = BELOW(hi, s[m]);
            }
            if (FINISHING && t->slopes) {
                UNROLL
                for (int m = 0; m < L * R; m++) s[m] = PRELU(s[m], slope);
            }
            float *below = L > 1 ? to + t->down : to;
            UNROLL
            for (int m = 0; m < R; m++) {
                STORE(to, s[m]);
                STEP(to, y_step);
            }
            UNROLL
            for (int m = R; m < L * R; m++) {
                STORE(below, s[m]);
                STEP(below, y_step);
            }
        }
    }
}

typedef void depthwise_of(const window_taps *t, size_t at, const float *w, float *y, size_t y_step, uint32_t times,
                          uint32_t n);

#if POSITIONS == 4
#define FORMS(T, SW, KW, L) T(1, SW, KW, L) T(2, SW, KW, L) T(3, SW, KW, L) T(4, SW, KW, L)
#else
#define FORMS(T, SW, KW, L)                                         \
    T(1, SW, KW, L) T(2, SW, KW, L) T(3, SW, KW, L) T(4, SW, KW, L) \
    T(5, SW, KW, L) T(6, SW, KW, L) T(7, SW, KW, L) T(8, SW, KW, L)
#endif
#if WINDOW_TILES == 2
#define THREES(TABLE) TABLE(FORMS, 1, 3, 1) TABLE(FORMS, 2, 3, 1) TABLE(FORMS, 1, 3, 2)
#elif WINDOW_TILES
#define THREES(TABLE) TABLE(FORMS, 1, 3, 1) TABLE(FORMS, 2, 3, 1)
#else
#define THREES(TABLE)
#endif
#define TABLES(TABLE) TABLE(FORMS, 0, 0, 1) THREES(TABLE) TABLE(FIVES_1, 1, 5, 1) TABLE(FIVES_2, 2, 5, 1)
#define TILE(R, SW, KW, L)                                                                                       \
    static void depthwise_##SW##_##KW##_##R##_##L(const window_taps *t, size_t at, const float *w, float *y,     \
                                                  size_t y_step, uint32_t times, uint32_t n)                     \
    {                                                                                                            \
        depthwise_tile(t, at, w, y, y_step, times, n, R, SW, KW, L);                                             \
    }
#define TILES_OF(LIST, SW, KW, L) LIST(TILE, SW, KW, L)
TABLES(TILES_OF)
#undef TILE

#define TILE(R, SW, KW, L) [R] = depthwise_##SW##_##KW##_##R##_##L,
#define NAMES_OF(LIST, SW, KW, L) {[0] = NULL, LIST(TILE, SW, KW, L)},
/* plus 1 or 2: pixels from one position to the next */
enum { ANY_WINDOW = 0, THREE_WIDE = 0, TWO_LINES = 3, FIVE_WIDE = WINDOW_TILES ? WINDOW_TILES + 1 : 0 };
static depthwise_of *const DEPTHWISE[][MOST_POSITIONS + 1] = {TABLES(NAMES_OF)};
#undef TILE

/* Is what a tile gives, but for prelu, what is stored? */
INLINE int bare(const ln_finish *f, uint32_t live)
{
    return f->act == LN_ACT_NONE && f->other == NULL && (FINISHING || f->slopes == NULL) && live % LANES == 0;
}

/* How tiles make a line of n outputs. five: those of windows five taps wide, or NULL. They are of one size, that which
 * makes the fewest too many, the last one over what was done before; 0 if that is too many with all sizes. Else tiles
 * are of nearly one size. */
static int cut_line(window_taps *t, depthwise_of *const *five, uint32_t n)
{
    uint32_t best = 0, least = n + n / 4;
    for (uint32_t size = 1; five && size <= MOST_POSITIONS && size <= n; size++) {
        const uint32_t made = (n + size - 1) / size * size;
        if (five[size] == NULL || made > least) continue;
        best = size;
        least = made;
    }
    const uint32_t tiles = (n + POSITIONS - 1) / POSITIONS;
    t->size = best ? best : n / tiles;
    t->larger = best ? best : t->size + 1;
    t->larger_ones = best ? n / best : n % tiles;
    t->others = best ? n % best != 0 : tiles - t->larger_ones;
    t->begin = best ? n - best : t->larger_ones * t->larger;
    return best != 0;
}

/* A line of outputs, or two where the tiles make so many, to y[to], `live` channels of it from o on; w: the weights of
 * the first panel. */
static void depthwise_line(const ln_depthwise *d, window_taps *t, depthwise_of *const *tile_for, const float *w, float *y,
                           size_t to, uint32_t o, uint32_t live)
{
    const ln_finish *f = &d->put.finish;
    const uint32_t larger_ones = t->larger_ones, larger = t->larger, others = t->others, size = t->size;
    const size_t step = d->put.y_step;

    if (bare(f, live)) {
        t->slopes = f->slopes ? f->slopes + o : NULL;
        if (larger_ones) tile_for[larger](t, 0, w, y + to, step, larger_ones, live);
        if (others) tile_for[size](t, t->begin * t->next, w, y + to + t->begin * step, step, others, live);
        return;
    }
    t->slopes = NULL;
    for (uint32_t p = 0; p < live; p += LN_PANEL) {
        const uint32_t rest = live - p < LN_PANEL ? live - p : LN_PANEL;
        float kept[MOST_POSITIONS * LN_PANEL];
        for (uint32_t j = 0, k = 0, n; k < larger_ones + others; k++, j += n) {
            const uint32_t from = k < larger_ones ? j : t->begin + (k - larger_ones) * size;
            n = (k < larger_ones ? larger : size) - (j - from);
            tile_for[n + j - from](t, from * t->next + p, w + p / LN_PANEL * t->each, kept, LN_PANEL, 1, rest);
            put_rows(&d->put, kept + (j - from) * LN_PANEL, LN_PANEL, n, y, to + j * step + p, o + p, rest);
        }
    }
}

static void put_zeros(float *y, size_t n) /* n: a multiple of LN_PANEL */
{
    for (size_t k = 0; k < n; k += LN_PANEL) {
        UNROLL
        for (int c = 0; c < LN_PANEL; c += LANES) STORE(y + k + c, SPLAT(0.0f));
    }
}

/* Line `row` of the image, the first `columns` pixels of it, `live` channels from panel q on, to `to`. */
static void bring_line(const ln_depthwise *d, tile *t, const float *x, uint32_t row, uint32_t columns, uint32_t q,
                       uint32_t live, float *to)
{
    const ln_product *p = d->source;
    if (p == NULL) {
        const size_t C = (size_t)d->g.C;
        x += (size_t)row * (size_t)d->g.W * C + q * LN_PANEL;
        if (live == LN_PIXEL)
            for (uint32_t j = 0; j < columns; j++, x += C, to += LN_PIXEL) {
                vf all[LN_PIXEL / LANES]; /* all loads first: pairs of them may be one instruction */
                UNROLL
                for (int c = 0; c < LN_PIXEL / LANES; c++) all[c] = LOAD(x + c * LANES);
                UNROLL
                for (int c = 0; c < LN_PIXEL / LANES; c++) STORE(to + c * LANES, all[c]);
            }
        else
            for (uint32_t j = 0; j < columns; j++, x += C, to += LN_PIXEL)
                for (uint32_t c = 0; c < live; c += LANES) STORE(to + c, load_some(x + c, live - c));
        return;
    }
    x += (size_t)row * p->step_i;
    even_rows(p, t, x, p->step_j, d->source_w, columns, COLUMNS > 2 ? most_rows(live) : ROWS, to, 0, q, live);
}

static void depthwise(const ln_depthwise *d, const float *x, float *y, float *ring, uint32_t panel, uint32_t panel_end)
{
    const ln_window *g = &d->g;
    const uint32_t C = (uint32_t)g->C, n_taps = (uint32_t)(g->kh * g->kw), pad = (uint32_t)g->left;
    const uint32_t columns = pad >= d->width ? 0 : d->width - pad < (uint32_t)g->W ? d->width - pad : (uint32_t)g->W;
    const size_t line = (size_t)d->width * LN_PIXEL, left = (size_t)pad * LN_PIXEL, inner = (size_t)columns * LN_PIXEL;
    const size_t each = (size_t)(1 + n_taps) * LN_PANEL; /* weights of a panel */
    const int32_t span_down = (g->kh - 1) * g->dh + 1, all = (g->Ho - 1) * g->sh + span_down;
    const int far = FETCHES && (size_t)(g->Ho * g->Wo) * C >= FAR_FLOATS;
    const int dense = g->dw == 1 && g->sw <= 2, threes = WINDOW_TILES && g->kw == 3 && g->kh == 3 && dense;
    const int twos = WINDOW_TILES == 2 && threes && g->sw == 1 && g->sh == 1 && g->dh == 1 && d->lines > 3;
    size_t span[LN_MOST_SPANS];
    tile made = {0};
    window_taps t = {{NULL}, g->kh, g->kw, (size_t)g->dw * LN_PIXEL, (size_t)g->sw * LN_PIXEL, each,
                     (size_t)g->Wo * C, 0, 0, 0, 0, 0, clamps(&d->put.finish), d->put.finish.lo, d->put.finish.hi, NULL};
    const int fives = cut_line(&t, g->kw == 5 && dense ? DEPTHWISE[FIVE_WIDE + g->sw] : NULL, (uint32_t)g->Wo);
    const int form = fives ? FIVE_WIDE + g->sw : threes ? THREE_WIDE + g->sw : ANY_WINDOW;

    if (d->source) made = tile_of(d->source, span);
    for (uint32_t l = 0; l < d->lines; l++) { /* the frame, left and right */
        put_zeros(ring + l * line, columns ? left : line);
        if (columns) put_zeros(ring + l * line + left + inner, line - left - inner);
    }
    for (uint32_t q = panel, n; q < panel_end; q += n) {
        n = q + 2 <= panel_end && (q + 2) * LN_PANEL <= C ? 2 : 1;
        const uint32_t rest = C - q * LN_PANEL, live = rest < n * LN_PANEL ? rest : n * LN_PANEL;
        const float *w = ln_floats(d->w) + q * each;
        float widened[2 * (LN_MOST_TAPS + 1) * LN_PANEL];
        if (live < LN_PANEL || d->dtype != LN_F32) {
            const uint32_t width = live < LN_PANEL ? (live + 3) / 4 * 4 : LN_PANEL;
            for (uint32_t k = 0; k < n * (n_taps + 1); k++) {
                for (uint32_t c = width; c < LN_PANEL; c++) widened[k * LN_PANEL + c] = 0.0f;
                ln_read_weights(d->w, d->dtype, q * each + k * width, widened + k * LN_PANEL, width);
            }
            w = widened;
        }
        int32_t brought = 0; /* lines, of frame and image, that have been in the ring */
        const int two = twos && bare(&d->put.finish, live);
        for (int32_t i = 0, made_lines; i < g->Ho; i += made_lines) {
            made_lines = two && i + 1 < g->Ho ? 2 : 1;
            const int32_t top = i * g->sh, bottom = top + span_down + made_lines - 1;
            const size_t to_line = (size_t)i * (size_t)g->Wo * C + q * LN_PANEL;
            for (int32_t j = 0; far && j < g->Wo; j++) /* as a tile of a product does */
                for (uint32_t c = 0; c < live; c += LN_PANEL) FETCH(y + to_line + (size_t)j * C + c);
            if (brought < bottom) { /* as many as there is room for */
                const int32_t until = all - top < (int32_t)d->lines ? all : top + (int32_t)d->lines;
                for (int32_t l = brought > top ? brought : top; l < until; l++) {
                    float *to = ring + (uint32_t)l % d->lines * line + left;
                    const int32_t row = l - g->top;
                    if (row < 0 || row >= g->H) put_zeros(to, inner);
                    else if (columns) bring_line(d, &made, x, (uint32_t)row, columns, q, live, to);
                }
                brought = until;
            }
            for (int32_t u = 0; u < g->kh + made_lines - 1; u++)
                t.line[u] = ring + (uint32_t)(top + u * g->dh) % d->lines * line;
            depthwise_line(d, &t, DEPTHWISE[made_lines > 1 ? TWO_LINES : form], w, y, to_line, q * LN_PANEL, live);
        }
    }
}
