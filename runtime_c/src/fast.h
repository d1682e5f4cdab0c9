/* What the files of the fast way share: the table of kernels, which each instruction set fills, and the plan, which
 * ln_fast_prepare makes and ln_run walks. Not for callers: litenet_fast.h is the interface. */
#ifndef LN_FAST_INTERNAL_H
#define LN_FAST_INTERNAL_H

#include "litenet_fast.h"
#include "ln_internal.h"
#include "ln_wino.h"

enum {
    LN_MOST_ROWS = 16,   /* rows of the largest register tile */
    LN_MOST_SPANS = 256, /* of a row of a product */
    LN_MOST_LINES = 16,  /* rows of taps of a depthwise convolution, and all of its taps */
    LN_MOST_TAPS = 64,
    LN_PIXEL = 2 * LN_PANEL, /* floats of a pixel of its ring */
    LN_WINO_BLOCK = 16,  /* Winograd tiles that are worked on together */
    LN_SPIN_CHAINS = 10, /* as many as the smallest register file holds */
    LN_WINO_POINTS = 36  /* of the largest Winograd tile: 6 x 6 */
};

#define LN_INFINITE ln_float_of(0x7F800000u) /* clamping between it and its negative changes nothing */

/* What happens to a sum before it is stored: an activation, of which clamping is done in passing; then what the operators
 * do that were joined. */
typedef struct ln_finish {
    uint32_t act; /* LN_ACT_*; LN_ACT_NONE where clamping is all */
    float alpha, lo, hi;
    const float *slopes;  /* of a prelu, one a channel; NULL: none */
    const float *other;   /* is added: a tensor of the output's shape, known when a step runs; NULL: none */
    float sum_lo, sum_hi; /* clamp that sum */
} ln_finish;

static inline ln_finish ln_finish_of(uint32_t act, float alpha)
{
    ln_finish f = {act, alpha, -LN_INFINITE, LN_INFINITE, NULL, NULL, -LN_INFINITE, LN_INFINITE};
    if (act == LN_ACT_RELU || act == LN_ACT_RELU6) {
        f.act = LN_ACT_NONE;
        f.lo = 0.0f;
        if (act == LN_ACT_RELU6) f.hi = 6.0f;
    }
    return f;
}

/* Rows times packed weights, as in ln_panels.h. A row is read in spans, n_u times n_v of them, n values each. Rows are
 * the positions of a window over an image; a plain matrix is an image of one column. */
typedef struct ln_product {
    uint32_t f16, O, K;      /* type of the weights, channels and inputs of the panels */
    uint32_t n_u, n_v, n;    /* spans */
    size_t step_u, step_v;   /* floats from one span to the next */
    size_t step_i, step_j;   /* floats from one position to the one below it, and to the one right of it */
    uint32_t Wo;             /* positions side by side; with pool: half of them */
    uint32_t pool;           /* 1: of each 2 x 2 positions the largest value is stored, and four rows make one */
    size_t y_step;           /* floats from one stored row to the next */
    ln_finish finish;
} ln_product;

/* A 3 x 3 convolution of stride 1 by Winograd's algorithm F(m x m, 3 x 3). */
typedef struct ln_wino {
    uint32_t m;              /* outputs of a tile along an axis: 2 or 4 */
    int32_t H, W, Ho, Wo, top, left;
    uint32_t C, O;           /* multiples of 16 */
    uint32_t tiles_down, tiles_right;
    uint32_t pool;           /* 1: the largest of each 2 x 2 outputs is stored */
    ln_finish finish;
    const float *weights;    /* [point][panel of 16][C][16], ln_wino_step floats from point to point; maybe of the file */
    const float *bias;       /* [O] */
} ln_wino;

/* A depthwise convolution, of what lies in memory or of what a product makes for it. */
typedef struct ln_depthwise {
    ln_window g;
    uint32_t dtype;          /* of the weights */
    const uint8_t *w;
    uint32_t width, lines;   /* pixels of a line of the ring, and its lines: LN_PIXEL floats a pixel */
    ln_product put;          /* how a line of outputs is stored: finish, and y_step */
    const ln_product *source; /* makes the image, g.W rows a line of it, y_step LN_PIXEL; NULL: x is the image */
    const uint8_t *source_w;
} ln_depthwise;

typedef struct ln_kernels {
    const char *name;
    uint32_t lanes;          /* floats of a vector */
    const struct ln_kernels *narrow; /* those for up to 8 channels, and for halves; NULL: these */
    int halves;              /* 1: products take halves as weights; 0: the plan makes floats of them */

    /* rows [row, row_end) of y, channels of the panels [panel, panel_end); with pool, rows are multiples of 4 */
    void (*product)(const ln_product *p, const uint8_t *w, const float *x, float *y, uint32_t row, uint32_t row_end,
                    uint32_t panel, uint32_t panel_end);
    /* the same for one row that lies in one piece */
    void (*vector)(const ln_product *p, const uint8_t *w, const float *x, float *y, uint32_t panel,
                   uint32_t panel_end);
    /* panels [panel, panel_end) of a 3 x 3 convolution to out, as ln_wino has them */
    void (*wino_weights)(uint32_t m, const uint8_t *w, uint32_t f16, uint32_t C, uint32_t O, float *out, uint32_t panel,
                         uint32_t panel_end);
    /* tiles [tile, tile_end), channels of the panels [panel, panel_end); scratch: ln_wino_scratch floats */
    void (*wino)(const ln_wino *p, const float *x, float *y, float *scratch, uint32_t tile, uint32_t tile_end,
                 uint32_t panel, uint32_t panel_end);

    /* channels of the panels [panel, panel_end); x: the image, or what its product reads; ring: its lines */
    void (*depthwise)(const ln_depthwise *d, const float *x, float *y, float *ring, uint32_t panel,
                      uint32_t panel_end);

    /* `rounds` times LN_SPIN_CHAINS independent multiply-adds of vectors; what they give is of no interest; NULL: none */
    float (*spin)(uint32_t rounds);
    /* The rest as the core's operators, with x, y and w of c set. */
    void (*run[LN_OP_END])(const ln_call *c); /* NULL: the portable one */
} ln_kernels;

extern const ln_kernels ln_kernels_sse2, ln_kernels_avx2, ln_kernels_avx512, ln_kernels_neon, ln_kernels_wasm;

/* As ln_crc32, by instructions made for it where this processor has them. */
uint32_t ln_fast_crc32(uint32_t crc, const void *data, size_t len);

/* The 64 bytes of `sum` stand before p[0..len), len at least 192: other 64 bytes that stand before what is left have
 * the same CRC. Returns how many are gone. For processors with VPCLMULQDQ and AVX-512. */
size_t ln_fold_wide(uint8_t *sum, const uint8_t *p, size_t len);

/* The set for this number on this processor; NULL if it has none. */
const ln_kernels *ln_kernels_for(int kernels);

static inline uint64_t ln_wino_scratch(const ln_wino *p) /* floats */
{
    const uint64_t points = (uint64_t)(p->m + 2) * (p->m + 2), values = (uint64_t)p->C + p->O;
    return p->C + points * (LN_WINO_BLOCK * (values + 2 * LN_PANEL) + 2 * LN_PANEL);
}

/* ---- the plan */

typedef struct ln_place { /* of a tensor: arena, the caller's input, or the caller's output */
    uint32_t base;        /* LN_AT_* */
    size_t at;            /* floats from there */
} ln_place;

enum { LN_AT_ARENA, LN_AT_INPUT, LN_AT_OUTPUT, LN_BASES };

typedef struct ln_work { /* one run */
    float *base[LN_BASES];
    float *scratch;       /* starts at a multiple of 64 */
    ln_pool *pool;        /* NULL: none */
} ln_work;

typedef struct ln_step { /* one operator, or several as one */
    void (*run)(const struct ln_step *s, const ln_work *work, const float *x, float *y);
    const char *algorithm;
    const ln_kernels *kernels;
    ln_place x[4], y, other;  /* other: what is added to the result; meaningless where `adds` is 0 */
    uint32_t adds;
    uint32_t count;           /* operators that this is */
    uint64_t scratch_bytes;   /* of all workers */
    size_t worker_scratch;    /* floats from one worker's to the next's */
    uint64_t cycles;          /* a rough estimate of what it takes one thread */
    uint32_t parts;           /* that the work is cut into where there are threads: 1 if it is too little */
    ln_call call;             /* of the operator, of several the first */
    void (*op)(const ln_call *c);
    ln_product product;
    uint32_t rows, groups;
    size_t group_x, group_w, group_y; /* from group to group: floats, bytes, floats */
    ln_window framed;         /* the image is copied into a frame of framed.Ho x framed.Wo pixels; C 0: it is not */
    size_t pixel;             /* floats from one pixel of the frame to the next */
    ln_wino wino;
    ln_depthwise depthwise;
    ln_place aside;           /* where a joined depthwise convolution's x goes first, aside_floats; 0: nowhere */
    size_t aside_floats;
    const struct ln_int8_step *int8; /* of a step of int8 (fast_int8.h) */
    size_t detour;            /* floats of y, where it lies over x and so is made in scratch first; 0: it does not */
} ln_step;

typedef struct ln_plan {
    struct ln_fast head;
    const ln_kernels *kernels;
    ln_pool *pool;
    size_t bytes;             /* of the plan with all that belongs to it */
    ln_step *step;            /* one an operator */
    ln_step *joined;          /* for operator i: it and some that follow as one; run NULL: they are not joined */
} ln_plan;

static inline const ln_plan *ln_plan_of(const ln_model *m)
{
    return (const ln_plan *)(const void *)m->fast;
}

/* What a test may ask for, for all operators at once. */
size_t ln_fast_bytes_as(const ln_model *m, int kernels, int choice);
ln_status ln_fast_prepare_as(ln_model *m, int kernels, int choice, ln_pool *pool, void *memory, size_t bytes);

/* Part `index` of `parts` of the numbers below n, which begin at multiples of `step`. */
void ln_part_of(uint32_t n, uint32_t step, uint32_t index, uint32_t parts, uint32_t *first, uint32_t *end);

/* The walk over a prepared model. */
ln_status ln_fast_run(const ln_model *m, void *arena, const void *in, void *out, ln_after_op after, void *user);

/* The ways to run a step. */
void ln_step_op(const ln_step *s, const ln_work *work, const float *x, float *y);
void ln_step_product(const ln_step *s, const ln_work *work, const float *x, float *y);
void ln_step_depthwise(const ln_step *s, const ln_work *work, const float *x, float *y);
void ln_step_vector(const ln_step *s, const ln_work *work, const float *x, float *y);
void ln_step_embed(const ln_step *s, const ln_work *work, const float *x, float *y);
void ln_step_wino(const ln_step *s, const ln_work *work, const float *x, float *y);

#endif
