/* Winograd's algorithm, as far as a file may hold something of it: transformed weights behind those of a convolution.
 * FORMAT.md, section 5; the algorithm itself is fast_winograd.h. */
#ifndef LN_WINO_H
#define LN_WINO_H

#include "ln_panels.h"
#include "ln_shapes.h"

/* Can it do the convolution with these attributes, from C channels to O? Its window is 3 x 3, stride, dilation and groups
 * are 1: bytes 0 to 3 and 8 to 11; and channels fill their panels. */
static inline int ln_wino_suits(const uint8_t *attrs, uint32_t C, uint32_t O)
{
    return ln_word_at(attrs) == 0x01010303 && ln_word_at(attrs + 8) == 0x00010101 && (C | O) % LN_PANEL == 0;
}

/* Floats from one point's weights to the next's: C * O is mostly a power of two, and the same weight of all points, made
 * together, would be in one set of the cache. */
static inline uint64_t ln_wino_step(uint32_t C, uint32_t O)
{
    return (uint64_t)C * O + LN_PANEL;
}

/* Outputs of a tile along an axis, for the algorithm of a record whose weights are stored: 4 for 1, 2 for 2. */
static inline uint32_t ln_wino_tile(uint32_t algorithm)
{
    return 6 - 2 * algorithm;
}

/* Bytes of the points that a file holds for it. C * O is below 2^32. */
static inline uint64_t ln_wino_stored_bytes(uint32_t algorithm, uint32_t C, uint32_t O)
{
    const uint32_t n = ln_wino_tile(algorithm) + 2;
    return n * n * sizeof(float) * ln_wino_step(C, O);
}

#endif
