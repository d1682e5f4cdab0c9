/* int8_add: the sum of two tensors in whole numbers; what comes out is the float32 they stand for.
 *   q = clamp(zero(y) + (((x - zero(x)) M1 + (x2 - zero(x2)) M2 + 2^(S-1)) >> S), lo, hi)    y = s(y) (q - zero(y))
 *   M1 / 2^S and M2 / 2^S are nearest to s(x) / s(y) and s(x2) / s(y): the largest S up to 24 with |M| below 2^15
 * int8_add_numbers  numbers (5) int32: M1, M2, S, lo, hi
 * int8_add          x, x2, y (n) float32
 * Macro     ACT: none, relu or relu6
 * Launch    numbers: one thread. add: grid: any, block: any, a thread has a value at a time
 * Aliasing  y may be x or x2
 */
#include "int8.cuh"

extern "C" __global__ void int8_add_numbers(
    const Scale *x_scale, const Scale *x2_scale, const Scale *y_scale, int *numbers)
{
    wait_for_last_launch();
    const Scale s = *y_scale;
    const double r1 = (double)x_scale->scale / (double)s.scale, r2 = (double)x2_scale->scale / (double)s.scale;
    int S = 24;
    double m1, m2;
    for (;; S--) {
        m1 = floor(r1 * (double)(1 << S) + 0.5);
        m2 = floor(r2 * (double)(1 << S) + 0.5);
        if ((m1 <= 32767.0 && m2 <= 32767.0) || S == 1) break;
    }
    numbers[0] = (int)m1;
    numbers[1] = (int)m2;
    numbers[2] = S;
    numbers[3] = lowest(ACT, s);
    numbers[4] = highest(ACT, s);
}

extern "C" __global__ void __launch_bounds__(256) int8_add(
    const float *x, const float *x2, const int *__restrict__ numbers, const Scale *x_scale, const Scale *x2_scale,
    const Scale *y_scale, float *y, int n)
{
    wait_for_last_launch();
    const Scale a = *x_scale, b = *x2_scale, s = *y_scale;
    const float over_a = 1.0f / a.scale, over_b = 1.0f / b.scale;
    const int m1 = numbers[0], m2 = numbers[1], S = numbers[2], lo = numbers[3], hi = numbers[4];
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        const int p = whole(x[i], over_a, a.zero) - a.zero, q = whole(x2[i], over_b, b.zero) - b.zero;
        y[i] = real_of(clamp(s.zero + ((p * m1 + q * m2 + (1 << (S - 1))) >> S), lo, hi), s);
    }
}
