/* winograd4.cuh: Winograd's F(4x4, 3x3) in one dimension: 4 sums of 3 taps over 6 values by 6 multiplications, not 12.
 *   y = A' [ (G g) * (B' d) ]    d: 6 values, g: 3 taps, y: 4 sums, * element by element, ' transposed
 * and its adjoint, by which the weight gradient is made: dg = G' [ (A dy) * (B' d) ]. In two dimensions each is done
 * down the columns, then along the rows; a patch of 6 x 6 has 36 elements.
 *
 * The points are 0, a, -a, b, -b and infinity. a = 3/4 and b = 3/2 are exact, as all sums and products below are, but
 * for the fractions in G; and they keep the numbers of all three matrices near 1: over 128 channels of normal random
 * numbers the largest error is 0.7e-5 of the results' root mean square, where 1 and 2 give 3.9e-5, 1 and 1/2 3.3e-5.
 */
#pragma once
#include "image.cuh"

enum { OUTER = 6, INNER = 4, ELEMENTS = 36 }; /* a tile is INNER x INNER sums of a patch of OUTER x OUTER */

#define POINT_A 0.75f
#define POINT_B 1.5f
#define AA 0.5625f    /* a a */
#define BB 2.25f      /* b b */
#define AABB 1.265625f
#define AA_BB 2.8125f /* aa + bb */
#define OF_A (0.5f / (AA * (AA - BB))) /* of row a of G */
#define OF_B (0.5f / (BB * (BB - AA)))

/* d = B' d */
__device__ __forceinline__ void transform_input(float &d0, float &d1, float &d2, float &d3, float &d4, float &d5)
{
    const float even_a = fmaf(-BB, d2, d4), odd_a = fmaf(-BB, d1, d3);
    const float even_b = fmaf(-AA, d2, d4), odd_b = fmaf(-AA, d1, d3);
    d0 = fmaf(AABB, d0, fmaf(-AA_BB, d2, d4));
    d5 = fmaf(AABB, d1, fmaf(-AA_BB, d3, d5));
    d1 = fmaf(POINT_A, odd_a, even_a), d2 = fmaf(-POINT_A, odd_a, even_a);
    d3 = fmaf(POINT_B, odd_b, even_b), d4 = fmaf(-POINT_B, odd_b, even_b);
}

/* u = G g */
__device__ __forceinline__ void transform_taps(float g0, float g1, float g2, float (&u)[OUTER])
{
    const float even_a = OF_A * fmaf(AA, g2, g0), even_b = OF_B * fmaf(BB, g2, g0);
    u[0] = 1.0f / AABB * g0;
    u[1] = fmaf(OF_A * POINT_A, g1, even_a), u[2] = fmaf(-OF_A * POINT_A, g1, even_a);
    u[3] = fmaf(OF_B * POINT_B, g1, even_b), u[4] = fmaf(-OF_B * POINT_B, g1, even_b);
    u[5] = g2;
}

/* y = A' m */
__device__ __forceinline__ void transform_back(const float (&m)[OUTER], float (&y)[INNER])
{
    const float even_a = m[1] + m[2], odd_a = POINT_A * (m[1] - m[2]);
    const float even_b = m[3] + m[4], odd_b = POINT_B * (m[3] - m[4]);
    y[0] = m[0] + even_a + even_b;
    y[1] = odd_a + odd_b;
    y[2] = fmaf(AA, even_a, BB * even_b);
    y[3] = fmaf(AA, odd_a, fmaf(BB, odd_b, m[5]));
}

/* q = A g */
__device__ __forceinline__ void transform_gradient(float g0, float g1, float g2, float g3, float (&q)[OUTER])
{
    const float even_a = fmaf(AA, g2, g0), odd_a = POINT_A * fmaf(AA, g3, g1);
    const float even_b = fmaf(BB, g2, g0), odd_b = POINT_B * fmaf(BB, g3, g1);
    q[0] = g0, q[5] = g3;
    q[1] = even_a + odd_a, q[2] = even_a - odd_a;
    q[3] = even_b + odd_b, q[4] = even_b - odd_b;
}

/* g = G' m */
__device__ __forceinline__ void transform_to_taps(const float (&m)[OUTER], float (&g)[3])
{
    const float even_a = OF_A * (m[1] + m[2]), odd_a = OF_A * POINT_A * (m[1] - m[2]);
    const float even_b = OF_B * (m[3] + m[4]), odd_b = OF_B * POINT_B * (m[3] - m[4]);
    g[0] = fmaf(1.0f / AABB, m[0], even_a + even_b);
    g[1] = odd_a + odd_b;
    g[2] = fmaf(AA, even_a, fmaf(BB, even_b, m[5]));
}

/* B' d B of a patch, in place. */
__device__ __forceinline__ void transform_patch(float (&d)[ELEMENTS])
{
#pragma unroll
    for (int b = 0; b < OUTER; b++) transform_input(d[b], d[6 + b], d[12 + b], d[18 + b], d[24 + b], d[30 + b]);
#pragma unroll
    for (int a = 0; a < ELEMENTS; a += OUTER)
        transform_input(d[a], d[a + 1], d[a + 2], d[a + 3], d[a + 4], d[a + 5]);
}
