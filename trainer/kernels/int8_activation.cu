/* int8_activation: an activation as a table of 256; what comes out is the float32 that its int8 stand for.
 *   table[x + 128] = the int8 nearest to act(s(x) (x - zero(x)))    y = s(y) (table[x + 128] - zero(y))
 * int8_table       table (256) int8, found in double
 * int8_activation  x, y (n) float32
 * Macro     ACT, the number of the activation
 * Launch    table: grid (1), block (256), an entry a thread. activation: grid: any, block: any
 *           alpha + rest: the slope of leaky_relu in two floats
 * Aliasing  y may be x
 */
#include "int8.cuh"

__device__ __forceinline__ double sigmoid_of(double h)
{
    const double e = exp(-fabs(h));
    return (h >= 0.0 ? 1.0 : e) / (1.0 + e);
}

__device__ __forceinline__ double activation_of(double h, double alpha)
{
    switch (ACT) {
    case ACT_RELU: return fmax(h, 0.0);
    case ACT_RELU6: return fmin(fmax(h, 0.0), 6.0);
    case ACT_LEAKY_RELU: return h > 0.0 ? h : alpha * h;
    case ACT_GELU: return h * (0.5 * (1.0 + erf(h * 0.7071067811865476)));
    case ACT_SIGMOID: return sigmoid_of(h);
    case ACT_TANH: return tanh(h);
    case ACT_SILU: return h * sigmoid_of(h);
    case ACT_HARD_SWISH: return h * fmin(fmax(h + 3.0, 0.0), 6.0) / 6.0;
    case ACT_GELU_TANH: return 0.5 * h * (1.0 + tanh(0.7978845608028654 * (h + 0.044715 * h * h * h)));
    default: return h;
    }
}

extern "C" __global__ void __launch_bounds__(256) int8_table(
    const Scale *x_scale, const Scale *y_scale, i8 *table, float alpha, float rest)
{
    wait_for_last_launch();
    const Scale s = *x_scale;
    const double h = (double)s.scale * ((double)(int)threadIdx.x - 128.0 - (double)s.zero);
    table[threadIdx.x] = (i8)nearest(activation_of(h, (double)alpha + (double)rest), *y_scale);
}

extern "C" __global__ void __launch_bounds__(256) int8_activation(
    const float *x, const i8 *__restrict__ table, const Scale *x_scale, const Scale *y_scale, float *y, int n)
{
    wait_for_last_launch();
    const Scale sx = *x_scale, sy = *y_scale;
    const float inverse = 1.0f / sx.scale;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x)
        y[i] = real_of(table[whole(x[i], inverse, sx.zero) + 128], sy);
}
