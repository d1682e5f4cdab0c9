/* Where a target of resize looks: shared by its two forms. */
#ifndef LN_RESIZE_H
#define LN_RESIZE_H

#include "ln_internal.h"

enum { LN_RESIZE_NEAREST = 0 }; /* mode */

/* At source j; for bilinear also, by f / d, at j + next. */
typedef struct ln_resize_tap {
    size_t j, next;
    uint32_t f, d; /* f < d < 2^18 */
} ln_resize_tap;

/* Target i of m along an axis of n sources. */
ln_resize_tap ln_resize_look(const ln_resize_attrs *a, int64_t i, int64_t n, int64_t m);

#endif
