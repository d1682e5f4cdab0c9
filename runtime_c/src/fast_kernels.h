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
 *     BY_LANE              defined where a multiply-add takes one factor from a lane: rows are then read by vectors
 *     FETCH(p)             a hint that p will be read soon; may be nothing
 *     ROWS                 rows of the register tile;   COLUMNS  its vectors side by side
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
#define INLINE static inline __attribute__((always_inline))

enum {
    PANEL_VECTORS = LN_PANEL / LANES,
    FETCH_AHEAD = 4096 /* bytes: weights come from far away at twice the rate than without hints */
};

typedef struct tile { /* what a register tile is told; the spans as in ln_product */
    uint32_t n_u, n_v, n;
    size_t step_u, step_v;
    size_t width;   /* of the panel: weights from one k to the next */
    int bias;       /* 0: the panel has none */
    float lo, hi;
} tile;

#include "fast_math.h"

#define WEIGHT float
#define NAMED(name) name##_f32
#define LOADW LOAD
#include "fast_tile.h"
#undef WEIGHT
#undef NAMED
#undef LOADW

#define WEIGHT uint16_t
#define NAMED(name) name##_f16
#define LOADW LOADH
#include "fast_tile.h"
#undef WEIGHT
#undef NAMED
#undef LOADW

#include "fast_product.h"

#include "fast_winograd.h"

#include "fast_others.h"

#endif
