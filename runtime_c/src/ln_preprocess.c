/* Preprocessing: any picture to the model's input. FORMAT.md, "Preprocessing", has the rules; everything up to the
 * last step is whole numbers, so a frame has the same bytes on every machine.
 *
 * Nothing is buffered: each frame value is one weighted sum over the source pixels below it. Cost, for h x w pixels to
 * H x W: at most (h + 2H)(w + 2W) pixel reads, and a division for each frame value. Stack: about 1 KB. */
#include "ln_internal.h"

enum { MAX_SIDE = 65535 }; /* of picture and frame: all products below fit 64 bits, a row's sum fits 32 */

/* What one target position sees along one axis: source positions first .. first + count - 1. The weights sum to
 * the axis's denominator; with count 1 only w_first counts. */
typedef struct taps {
    uint32_t first, count, w_first, w_mid, w_last;
} taps;

/* One axis: n source positions become m target positions under a resize rule. */
typedef struct axis {
    uint32_t n, m;
    int rule;
    uint32_t denominator;
} axis;

/* A part of the picture, and how its pixels become the frame's channels. */
typedef struct source {
    const uint8_t *pixels; /* first pixel of the part */
    size_t row_bytes, step; /* to the next row, to the next pixel */
    uint8_t at[3];         /* where the frame's channels stand in a pixel; with to_gray: where R, G and B stand */
    uint8_t alpha;         /* where alpha stands; 0: there is none */
    uint8_t to_gray;
    uint8_t channels;      /* values a pixel gives: 1 or 3 */
} source;

/* A rectangle of the frame that the picture fills. */
typedef struct target {
    uint8_t *frame;
    uint32_t frame_width, channels, top, left, height, width;
} target;

LN_COLD static axis make_axis(uint32_t n, uint32_t m, int rule)
{
    axis a = {n, m, rule, 1};

    if (rule == LN_AREA && m >= n) a.rule = LN_BILINEAR;
    if (a.rule == LN_BILINEAR) a.denominator = 2 * m;
    if (a.rule == LN_AREA) a.denominator = n;
    return a;
}

static taps taps_at(const axis *a, uint32_t i)
{
    const uint64_t n = a->n, m = a->m;
    const uint64_t centre = (2 * (uint64_t)i + 1) * n; /* in units of 1/(2m) of a source pixel */
    taps t = {0, 1, 1, 0, 0};

    if (a->rule == LN_NEAREST) {
        t.first = (uint32_t)(centre / (2 * m));
    } else if (a->rule == LN_BILINEAR) {
        uint64_t p = centre > m ? centre - m : 0, f;
        if (p > (n - 1) * 2 * m) p = (n - 1) * 2 * m;
        f = p % (2 * m);
        t.first = (uint32_t)(p / (2 * m));
        t.count = f != 0 ? 2 : 1;
        t.w_first = (uint32_t)(2 * m - f);
        t.w_last = (uint32_t)f;
    } else { /* area: source pixel j covers [j*m, (j+1)*m), the target [i*n, (i+1)*n) */
        const uint64_t from = i * n, to = from + n, last = (to - 1) / m;
        t.first = (uint32_t)(from / m);
        t.count = (uint32_t)(last - t.first + 1); /* at least 2, as n > m */
        t.w_first = (uint32_t)((t.first + (uint64_t)1) * m - from);
        t.w_mid = (uint32_t)m;
        t.w_last = (uint32_t)(to - last * m);
    }
    return t;
}

/* One pixel as the frame wants it: alpha blended over white, colour to grey. */
static void load(const source *s, const uint8_t *p, uint32_t v[3])
{
    uint32_t c;

    for (c = 0; c < 3; c++) v[c] = p[s->at[c]];
    if (s->alpha != 0) {
        const uint32_t a = p[s->alpha];
        for (c = 0; c < 3; c++) v[c] = (v[c] * a + 255 * (255 - a) + 127) / 255;
    }
    if (s->to_gray) v[0] = (19595 * v[0] + 38470 * v[1] + 7471 * v[2] + 32768) >> 16;
}

/* sum[c] = the weighted sum of one source row's pixels from p on. Below 2^25, as the weights' sum is below 2^17. */
static void sum_row(const source *s, const uint8_t *p, const taps *t, uint32_t sum[3])
{
    uint32_t c, k, v[3];

    if (s->alpha == 0 && !s->to_gray) { /* bytes are values: the fast way, all channels at once */
        const uint8_t *q0 = p + s->at[0], *q1 = p + s->at[1], *q2 = p + s->at[2];
        uint32_t mid0 = 0, mid1 = 0, mid2 = 0;
        sum[0] = t->w_first * *q0;
        sum[1] = t->w_first * *q1;
        sum[2] = t->w_first * *q2;
        if (t->count == 1) return;
        for (k = 2; k < t->count; k++) {
            mid0 += *(q0 += s->step);
            mid1 += *(q1 += s->step);
            mid2 += *(q2 += s->step);
        }
        sum[0] += t->w_mid * mid0 + t->w_last * q0[s->step];
        sum[1] += t->w_mid * mid1 + t->w_last * q1[s->step];
        sum[2] += t->w_mid * mid2 + t->w_last * q2[s->step];
        return;
    }
    for (c = 0; c < s->channels; c++) sum[c] = 0;
    for (k = 0; k < t->count; k++, p += s->step) {
        const uint32_t w = k == 0 ? t->w_first : k + 1 == t->count ? t->w_last : t->w_mid;
        load(s, p, v);
        for (c = 0; c < s->channels; c++) sum[c] += w * v[c];
    }
}

/* The frame pixel that sees rows y and columns x of the source: v = (sum wy*wx*pixel + D/2) / D, D = Dy*Dx. */
static void resize_pixel(const source *s, const taps *y, const taps *x, uint64_t D, uint32_t channels, uint8_t *out)
{
    const uint8_t *p = s->pixels + y->first * s->row_bytes + x->first * s->step;
    uint64_t total[3] = {D / 2, D / 2, D / 2};
    uint32_t k, c, sum[3];

    for (k = 0; k < y->count; k++, p += s->row_bytes) {
        const uint64_t w = k == 0 ? y->w_first : k + 1 == y->count ? y->w_last : y->w_mid;
        sum_row(s, p, x, sum);
        for (c = 0; c < s->channels; c++) total[c] += w * sum[c];
    }
    for (c = 0; c < s->channels; c++) { /* 32-bit division where it will do: the 64-bit one is slow on small chips */
        if (D <= UINT32_MAX / 256) out[c] = (uint8_t)((uint32_t)total[c] / (uint32_t)D);
        else out[c] = (uint8_t)(total[c] / D);
    }
    for (; c < channels; c++) out[c] = out[0]; /* grey to colour */
}

static uint8_t *pixel_at(const target *t, uint32_t i, uint32_t j)
{
    return t->frame + ((size_t)(t->top + i) * t->frame_width + t->left + j) * t->channels;
}

static void resize(const source *s, uint32_t height, uint32_t width, int rule, const target *t)
{
    enum { BLOCK = 16 }; /* columns whose taps are worked out once for all rows */
    const axis ya = make_axis(height, t->height, rule), xa = make_axis(width, t->width, rule);
    const uint64_t D = (uint64_t)ya.denominator * xa.denominator;
    uint32_t j0, i, j;
    taps x[BLOCK];

    for (j0 = 0; j0 < t->width; j0 += BLOCK) {
        const uint32_t columns = t->width - j0 < BLOCK ? t->width - j0 : BLOCK;
        for (j = 0; j < columns; j++) x[j] = taps_at(&xa, j0 + j);
        for (i = 0; i < t->height; i++) {
            const taps y = taps_at(&ya, i);
            uint8_t *out = pixel_at(t, i, j0);
            for (j = 0; j < columns; j++, out += t->channels) resize_pixel(s, &y, &x[j], D, t->channels, out);
        }
    }
}

/* Whether the mean over the picture's outermost pixels, each counted once, is above the middle. */
LN_COLD static int border_is_bright(const target *t)
{
    uint64_t sum = 0, count = 0;
    uint32_t i, j, c;

    for (i = 0; i < t->height; i++) {
        const uint32_t inner = i > 0 && i + 1 < t->height && t->width > 1; /* only its two ends are border */
        for (j = 0; j < t->width; j += inner ? t->width - 1 : 1) {
            const uint8_t *v = pixel_at(t, i, j);
            for (c = 0; c < t->channels; c++) sum += v[c];
            count += t->channels;
        }
    }
    return 2 * sum > 255 * count;
}

LN_COLD static void invert(const target *t)
{
    uint32_t i, k;

    for (i = 0; i < t->height; i++) {
        uint8_t *row = pixel_at(t, i, 0);
        for (k = 0; k < t->width * t->channels; k++) row[k] = (uint8_t)(255 - row[k]);
    }
}

LN_COLD static void fill_bars(const target *t, uint32_t frame_height, uint8_t pad)
{
    uint32_t i, j, c;

    for (i = 0; i < frame_height; i++) {
        uint8_t *row = t->frame + (size_t)i * t->frame_width * t->channels;
        const int inside = i >= t->top && i < t->top + t->height;
        for (j = 0; j < t->frame_width; j++) {
            if (inside && j == t->left) j += t->width; /* over the picture */
            if (j == t->frame_width) break;
            for (c = 0; c < t->channels; c++) row[(size_t)j * t->channels + c] = pad;
        }
    }
}

/* How pixels of `layout` are read for a model that wants `color`. 0: there is no such layout. */
LN_COLD static int set_layout(source *s, int layout, int color)
{
    static const uint8_t steps[] = {0, 1, 2, 3, 4, 3, 4};
    int is_bgr;

    if (layout < LN_GRAY || layout > LN_BGRA) return 0;
    is_bgr = layout == LN_BGR || layout == LN_BGRA;
    s->step = steps[layout];
    s->alpha = layout == LN_GRAY_ALPHA || s->step == 4 ? (uint8_t)(s->step - 1) : 0;
    s->at[0] = s->at[1] = s->at[2] = 0;
    s->to_gray = 0;
    s->channels = 1;
    if (s->step < 3) return 1;
    if (is_bgr != (color == LN_COLOR_BGR)) s->at[0] = 2; /* the first channel wanted stands last */
    else s->at[2] = 2;
    s->at[1] = 1;
    s->to_gray = color == LN_COLOR_GRAY;
    s->channels = s->to_gray ? 1 : 3;
    return 1;
}

static uint32_t at_least_1(uint64_t v)
{
    return v > 1 ? (uint32_t)v : 1;
}

ln_status ln_preprocess_bytes(const ln_preprocessing *p, const uint8_t *pixels, uint32_t height, uint32_t width,
                              int layout, uint8_t *frame, uint32_t frame_height, uint32_t frame_width)
{
    const uint64_t h = height, w = width, H = frame_height, W = frame_width;
    uint32_t part_height = height, part_width = width;
    source s;
    target t;

    if (p == NULL || pixels == NULL || frame == NULL) return LN_NULL_POINTER;
    if (p->color == LN_COLOR_NONE) return LN_NO_PREPROCESS;
    if (p->resize > LN_AREA || p->fit > LN_LETTERBOX || p->color > LN_COLOR_BGR || p->invert > LN_INVERT_AUTO)
        return LN_BAD_PREPROCESS;
    if (!set_layout(&s, layout, p->color)) return LN_BAD_CHANNELS;
    if (h < 1 || h > MAX_SIDE || w < 1 || w > MAX_SIDE || H < 1 || H > MAX_SIDE || W < 1 || W > MAX_SIDE)
        return LN_BAD_IMAGE_SIZE;
#if SIZE_MAX / 4 < 65535u * 65535u /* where size_t is small */
    if (h * w * s.step > SIZE_MAX || H * W * 3 > SIZE_MAX) return LN_BAD_IMAGE_SIZE;
#endif

    s.pixels = pixels;
    s.row_bytes = width * s.step;
    t.frame = frame;
    t.frame_width = t.width = frame_width;
    t.channels = p->color == LN_COLOR_GRAY ? 1 : 3;
    t.height = frame_height;
    t.top = t.left = 0;
    if (p->fit == LN_CROP) { /* the largest centred part with the frame's aspect */
        if (w * H > h * W) part_width = at_least_1((h * W + H / 2) / H);
        else part_height = at_least_1((w * H + W / 2) / W);
        s.pixels += (height - part_height) / 2 * s.row_bytes + (width - part_width) / 2 * s.step;
    }
    if (p->fit == LN_LETTERBOX) { /* the largest centred rectangle with the picture's aspect */
        if (w * H > h * W) t.height = at_least_1((h * W + w / 2) / w);
        else t.width = at_least_1((w * H + h / 2) / h);
        t.top = (frame_height - t.height) / 2;
        t.left = (frame_width - t.width) / 2;
    }
    resize(&s, part_height, part_width, p->resize, &t);
    if (p->invert == LN_INVERT_ALWAYS || (p->invert == LN_INVERT_AUTO && border_is_bright(&t))) invert(&t);
    if (p->fit == LN_LETTERBOX) fill_bars(&t, frame_height, p->pad);
    return LN_OK;
}

/* x[i] = (frame[i] - mean[c]) / std[c]. frame may be the last quarter of x's own bytes: x[i] ends before the
 * byte i + 1 that is read next. */
void ln_normalize(const ln_preprocessing *p, const uint8_t *frame, uint32_t elements, float *x)
{
    const uint32_t channels = p->color == LN_COLOR_GRAY ? 1 : 3;
    uint32_t i, c;

    for (i = 0, c = 0; i < elements; i++) {
        x[i] = ((float)frame[i] - p->mean[c]) / p->std[c];
        if (++c == channels) c = 0;
    }
}

/* x[i] = (frame[i] P[c] + Q[c]) >> 16, within int8. It fits 32 bits, as ln_check_preprocessing has it. */
static void normalize_i8(const uint8_t *b, uint32_t channels, const uint8_t *frame, uint32_t elements, int8_t *x)
{
    for (uint32_t c = 0; c < channels; c++) {
        const uint32_t P = ln_u32(b + 100 + 4 * c), Q = ln_u32(b + 112 + 4 * c);
        for (uint32_t i = c; i < elements; i += channels) {
            const int32_t q = (int32_t)(frame[i] * P + Q) >> 16;
            x[i] = (int8_t)(q < -128 ? -128 : q > 127 ? 127 : q);
        }
    }
}

void ln_frame_to_input(const ln_model *m, const uint8_t *frame, void *x)
{
    ln_preprocessing p;
    ln_tensor in;

    ln_get_tensor(m, 0, &in);
    ln_get_rules(m->bin, &p);
    if (ln_i8_type(in.dtype)) normalize_i8(m->bin, p.color == LN_COLOR_GRAY ? 1 : 3, frame, in.elements, x);
    else ln_normalize(&p, frame, in.elements, x);
}

LN_COLD ln_status ln_preprocess(const ln_model *m, const uint8_t *pixels, uint32_t height, uint32_t width, int layout,
                        void *x)
{
    ln_preprocessing p;
    ln_status status;
    ln_tensor in;
    uint8_t *frame;

    if (m == NULL || pixels == NULL || x == NULL) return LN_NULL_POINTER;
    if (m->len == 0) return m->status != LN_OK ? m->status : LN_NULL_POINTER; /* not open */
#ifdef LN_TERSE
    ln_model looked_at = *m;
    if ((status = ln_check_header_shape(&looked_at, 0, 24, 28)) != LN_OK) return status;
    if ((status = ln_check_preprocessing(&looked_at)) != LN_OK) return status;
#endif
    ln_get_rules(m->bin, &p);
    ln_get_tensor(m, 0, &in);
    if (p.color == LN_COLOR_NONE) return LN_NO_PREPROCESS;
    frame = ln_i8_type(in.dtype) ? x : (uint8_t *)x + (size_t)3 * in.elements;
    status = ln_preprocess_bytes(&p, pixels, height, width, layout, frame, in.dims[0], in.dims[1]);
    if (status == LN_OK) ln_frame_to_input(m, frame, x);
    return status;
}
