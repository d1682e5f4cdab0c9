/* The kernels, written once for every instruction set. A file fast_<set>.c defines the vector below, and what the
 * compiler cannot say with operators, then includes this file, and so becomes that set's kernels.
 *
 *     vf, vi               vectors of LANES floats, and of as many int32_t
 *     LOAD(p) STORE(p,v)   from and to any address
 *     LOADH(p)             LANES halves as floats
 *     SPLAT(x)             x in every lane
 *     MADD(a,b,c)          a * b + c, rounded once or twice
 *     ABOVE(floor,x)       x < floor ? floor : x, a NaN in x stays;   BELOW(ceiling,x) likewise
 *     LOAD_FIRST(p,n), STORE_FIRST(p,v,n)   the first n lanes only, n < LANES; not defined where a loop does it
 *     PRELU(v,slope)       v where it is above 0, else v * slope; where not defined, several instructions do it
 *     BY_LANE              defined where a multiply-add takes one factor from a lane: rows are then read by vectors
 *     FETCH(p)             a hint that p will be read soon; not defined: none
 *     COLUMNS              vectors of the register tile side by side: of one panel, or of some panels
 *     ROWS, PAIR_ROWS, NARROW_ROWS   rows of the register tile, of that of two vectors where COLUMNS is more, of that of one
 *     HALVES               1: products take halves as weights; 0: the plan widens them, or where TAKES_HALVES is defined
 *                          as 1, the products of KERNELS_NARROW take them
 *     POSITIONS            outputs of a depthwise convolution side by side, 8 where not defined
 *     FIVES_OF_8           defined where POSITIONS is 4, and windows five taps wide have tiles of up to 8
 *     UNROLL_LONG, HEAVY   where a byte of code counts: nothing before loops over more vectors than there are
 *                          registers, and `static` before long functions, which elsewhere are unrolled and inlined
 *     FINISHING            1: the tile of COLUMNS does prelu and the sum with another tensor; 0: put_rows does
 *     HALF_PANELS          1: COLUMNS is half a panel, and one call makes both halves; 0 where not defined
 *     POOL_TILES           1: tiles of pooled rows have four rows, and pool them; 0 where not defined: put_rows does
 *     LARGER(a,b)          the larger, a NaN in either stays; where not defined, several instructions do it
 *     IN_ORDER(v)          v is made before what comes next is read; nothing where not defined
 *     OWN_TRANSFORMS       a file with the transforms of F(4 x 4, 3 x 3); where not defined, those of fast_winograd.h
 *     WINDOW_TILES         1: depthwise windows of 3 x 3 have tiles in which a pixel is read once for all positions; 2: and
 *                          such as make two lines at once
 *
 * Accumulators are arrays with fixed indices: every loop over them is unrolled, so that they are registers. */
#ifndef LN_FAST_KERNELS_H
#define LN_FAST_KERNELS_H

#include "fast.h"

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
/* p += n, now: the compiler would work out where all rows are before it needs the first */
#define STEP(p, n) do { (p) += (n); __asm__("" : "+r"(p)); } while (0)
#define INLINE static inline __attribute__((always_inline))
#ifndef UNROLL_LONG
#define UNROLL_LONG UNROLL
#define HEAVY INLINE
#endif

enum {
    PANEL_VECTORS = LN_PANEL / LANES,
    TILE_PANELS = COLUMNS > PANEL_VECTORS ? COLUMNS / PANEL_VECTORS : 1, /* of a register tile */
    VECTOR_PANELS = LANES == 16 ? 8 : 1, /* of one row at once: memory is read faster in several places than in one */
    CLAMP_LOW = 1,
    CLAMP_HIGH = 2,
    FETCH_AHEAD = 4096 /* bytes: weights come from far away at twice the rate than without hints */
};

typedef struct tile { /* what a register tile is told */
    const size_t *span, *span_end; /* where in a row its spans of n values begin */
    uint32_t n;
    size_t width;   /* of the panel: weights from one k to the next */
    size_t panel;   /* weights from one panel to the next */
    size_t down;    /* floats of x from one tile to the next, which is below it; 0: it is beside it, of other panels */
    int bias;       /* 0: the panel has none */
    int clamped;    /* what is finite: CLAMP_LOW, CLAMP_HIGH, or 0 */
    float lo, hi;
    const float *slopes, *other; /* for the first column: as ln_finish has them; only where FINISHING says so */
    float sum_lo, sum_hi;
    uint32_t halves; /* 1: two tiles make a panel, and both are counted; only where HALF_PANELS says so */
    uint32_t pool;   /* 1: of the four rows the largest is stored; only where POOL_TILES says so */
} tile;

#ifdef FETCH
#define FETCHES 1
#else
#define FETCHES 0
#define FETCH(p) (void)(p)
#endif
#ifndef IN_ORDER
#define IN_ORDER(v) (void)(v)
#endif
#ifndef HALF_PANELS
#define HALF_PANELS 0
#endif
#ifndef POOL_TILES
#define POOL_TILES 0
#endif
#ifndef PAIR_ROWS
#define PAIR_ROWS ROWS
#define PAIR_TILES TILES
#endif

#include "fast_math.h"

#include "fast_finish.h"

#ifdef BY_LANE
static const float NO_BIAS[LN_PANEL];
#endif

#define WEIGHT float
#define NAMED(name) name##_f32
#define LOADW LOAD
#include "fast_tile.h"
#undef WEIGHT
#undef NAMED
#undef LOADW

#ifndef TAKES_HALVES
#define TAKES_HALVES HALVES
#endif

#if HALVES
#define WEIGHT uint16_t
#define NAMED(name) name##_f16
#define LOADW LOADH
#include "fast_tile.h"
#undef WEIGHT
#undef NAMED
#undef LOADW
#endif

#include "fast_product.h"

#include "fast_winograd.h"

#include "fast_depthwise.h"

#include "fast_others.h"

#endif
