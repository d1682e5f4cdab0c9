/* Rows times packed weights on 64-bit ARM: part of fast_int8_kernels.h, of sets that define OWN_PRODUCT and
 *
 *     ROWS                 of a tile over a panel of 16 channels
 *     PARTS                vectors that have the sums of four channels
 *     START(s,bias)        sums that begin with four biases
 *     STEP16, STEP8, STEP4 the products of so many k of R rows and V times four channels are added to s; g: bytes from
 *                          one group of four k to the next
 *     WHOLE4(s)            the sums of four channels, from PARTS vectors
 *
 * Sums stay in registers until they are bytes. A panel that is not full goes in pieces of 8 and 4 channels. */

typedef struct rows8 { /* where the next position is */
    const int8_t *line, *here;
    uint32_t left; /* positions of the line from there on */
} rows8;

typedef struct tile8 {
    const size_t *span, *span_end; /* where in a row its spans of n begin */
    size_t n, group;               /* numbers of a span; bytes from one group of four k to the next */
} tile8;

/* s[row][V][PARTS]: the sums of R rows and V times four channels, whose first weights are at w. */
INLINE void add_products8(const tile8 *t, const int8_t *const *x, const int8_t *w, int32x4_t *s, const size_t group,
                          const int R, const int V)
{
    for (const size_t *span = t->span; span != t->span_end; span++) {
        const int8_t *at[MOST_ROWS];
        size_t k = 0;
        UNROLL
        for (int m = 0; m < R; m++) at[m] = x[m] + *span;
        for (; k + 16 <= t->n; k += 16, w += 4 * group) STEP16(s, w, group, at, k, R, V);
        if (t->n & 8) {
            STEP8(s, w, group, at, k, R, V);
            k += 8;
            w += 2 * group;
        }
        if (t->n & 4) {
            STEP4(s, w, group, at, k, R, V);
            w += group;
        }
    }
}

/* R rows of V times four channels to bytes, `live` channels of them; or, pooled, the largest of four rows. bias, scale
 * and w are those of the first channel. */
INLINE void tile8_bytes(const ln_product8 *p, const tile8 *t, const int8_t *const *x, const uint8_t *bias,
                        const uint8_t *scale, const int8_t *w, int8_t *y, uint32_t live, limits q, const size_t group,
                        const int R, const int V, const int pooled)
{
    const int passes = pooled ? 4 / R : 1, kept = pooled ? 1 : R;
    int32x4_t s[16], most[4];
    UNROLL
    for (int pass = 0; pass < passes; pass++) {
        UNROLL
        for (int j = 0; j < V; j++) {
            const int32x4_t b = vreinterpretq_s32_u8(vld1q_u8(bias + 16 * j));
            UNROLL
            for (int m = 0; m < R; m++) START(s + (m * V + j) * PARTS, b);
        }
        add_products8(t, x + pass * R, w, s, group, R, V);
        UNROLL
        for (int m = 0; m < R; m++) {
            UNROLL
            for (int j = 0; j < V; j++) {
                const int32x4_t sum = WHOLE4(s + (m * V + j) * PARTS);
                if (pooled) most[j] = pass + m ? vmaxq_s32(most[j], sum) : sum;
                else s[m * V + j] = sum;
            }
        }
    }
    if (pooled) {
        UNROLL
        for (int j = 0; j < V; j++) s[j] = most[j];
    }
    int32x4_t by[4];
    UNROLL
    for (int j = 0; j < V; j++) by[j] = vreinterpretq_s32_u8(vld1q_u8(scale + 16 * j));
    UNROLL
    for (int m = 0; m < kept; m++, y += p->y_step) {
        requant(s + m * V, by, q, V);
        if (V == 4) {
            store_held(s + 4 * m, q, y);
        } else {
            const int8x8_t b = held8(s[V * m], s[V * m + V - 1], q);
            if (live == 8) vst1_s8(y, b);
            else store_some(y, b, live);
        }
    }
}

/* The next `count` positions, `right` apart, of lines of `width`; they are passed. */
INLINE void next_rows8(rows8 *r, uint32_t width, size_t down, size_t right, const int8_t **at, const int count)
{
    if (r->left > (uint32_t)count) {
        UNROLL
        for (int m = 0; m < count; m++, r->here += right) at[m] = r->here;
        r->left -= (uint32_t)count;
        return;
    }
    for (int m = 0; m < count; m++, r->here += right) {
        at[m] = r->here;
        if (--r->left) continue;
        r->left = width;
        r->line += down;
        r->here = r->line - right;
    }
}

typedef struct panel8 {
    const uint8_t *bias, *scale;
    const int8_t *w;
    uint32_t o, live, width;
    limits q;
} panel8;

#define WHOLE8(R, pooled) \
    tile8_bytes(p, t, at, q->bias, q->scale, q->w, y, LN_PANEL, q->q, 4 * LN_PANEL, R, 4, pooled)
#define PIECE8(R, V, pooled)                                                                                \
    tile8_bytes(p, t, at, q->bias + 4 * c, q->scale + 4 * c, q->w + 4 * c, y + c, q->live - c, q->q, t->group, \
                R, V, pooled)

/* Rows of a panel that is not full. */
static void narrow8(const ln_product8 *p, const tile8 *t, const panel8 *q, const int8_t *const *at, uint32_t rows,
                    int8_t *y)
{
    uint32_t c = 0;
    for (; c + 4 < q->width; c += 8) {
        if (p->pool) PIECE8(4, 2, 1);
        else if (rows == 4) PIECE8(4, 2, 0);
        else PIECE8(1, 2, 0);
    }
    if (c == q->width) return;
    if (p->pool) PIECE8(4, 1, 1);
    else if (rows == 4) PIECE8(4, 1, 0);
    else PIECE8(1, 1, 0);
}

static void pooled_rows8(const ln_product8 *p, const tile8 *t, const panel8 *q, rows8 r, int8_t *y, uint32_t rows)
{
    const int8_t *at[4];
    for (; rows; rows -= 4, y += p->y_step) {
        next_rows8(&r, p->Wo, 2 * p->step_i, 2 * p->step_j, at, 1);
        at[1] = at[0] + p->step_j;
        at[2] = at[0] + p->step_i;
        at[3] = at[2] + p->step_j;
        if (q->live == LN_PANEL) WHOLE8(ROWS, 1);
        else narrow8(p, t, q, at, 4, y);
    }
}

static void panel_rows8(const ln_product8 *p, const tile8 *t, const panel8 *q, rows8 r, int8_t *y, uint32_t rows)
{
    const int8_t *at[MOST_ROWS];
    const int full = q->live == LN_PANEL;
    for (; full && rows >= ROWS; rows -= ROWS, y += ROWS * p->y_step) {
        next_rows8(&r, p->Wo, p->step_i, p->step_j, at, ROWS);
        WHOLE8(ROWS, 0);
    }
    for (; !full && rows >= 4; rows -= 4, y += 4 * p->y_step) {
        next_rows8(&r, p->Wo, p->step_i, p->step_j, at, 4);
        narrow8(p, t, q, at, 4, y);
    }
    for (; rows; rows--, y += p->y_step) {
        next_rows8(&r, p->Wo, p->step_i, p->step_j, at, 1);
        if (full) WHOLE8(1, 0);
        else narrow8(p, t, q, at, 1, y);
    }
}

static void product8(const ln_product8 *p, const uint8_t *w, const void *x, int8_t *y, uint32_t row, uint32_t row_end,
                     uint32_t panel, uint32_t panel_end)
{
    const uint32_t spans = p->n_u * p->n_v, first = p->pool ? row / 4 : row, i = first / p->Wo;
    size_t span[LN_BYTE_SPANS];
    tile8 t = {span, span + spans, p->n, 0};
    rows8 r;

    for (uint32_t k = 0; k < spans; k++) span[k] = k / p->n_v * p->step_u + k % p->n_v * p->step_v;
    r.line = (const int8_t *)x + i * (p->step_i << p->pool);
    r.here = r.line + (first - i * p->Wo) * (p->step_j << p->pool);
    r.left = (i + 1) * p->Wo - first;
    y += (size_t)first * p->y_step;
    for (uint32_t n = panel; n < panel_end; n++) {
        const uint8_t *stored = w + n * p->stored;
        panel8 q;
        q.q = limits_of(p->q);
        q.o = n * LN_PANEL;
        q.live = p->O - q.o < LN_PANEL ? p->O - q.o : LN_PANEL;
        q.width = (q.live + 3) & ~3u;
        q.bias = stored;
        q.scale = stored + 4 * (size_t)q.width;
        q.w = p->weights ? (const int8_t *)p->weights + n * (LN_PANEL * (size_t)spans * p->n)
                         : (const int8_t *)stored + 8 * (size_t)q.width;
        t.group = 4 * (size_t)q.width;
        (p->pool ? pooled_rows8 : panel_rows8)(p, &t, &q, r, y + q.o, row_end - row);
    }
}
