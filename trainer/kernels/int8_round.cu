/* int8_round: both ends of rounding.
 *   int8_round   x = the nearest of the float32 that int8 stand for, in place
 *   int8_inside  dh = dy where y's int8 is neither the lowest nor the highest, else 0: what backward goes by
 * x, y, dy, dh (n) float32
 * Launch    grid: any, block: any; a thread has a value at a time
 * Aliasing  dh may be dy
 */
#include "int8.cuh"

extern "C" __global__ void __launch_bounds__(256) int8_round(float *x, const Scale *x_scale, int n)
{
    wait_for_last_launch();
    const Scale s = *x_scale;
    const float inverse = 1.0f / s.scale;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x)
        x[i] = real_of(whole(x[i], inverse, s.zero), s);
}

extern "C" __global__ void __launch_bounds__(256) int8_inside(
    const float *dy, const float *__restrict__ y, const Scale *y_scale, float *dh, int n)
{
    wait_for_last_launch();
    const Scale s = *y_scale;
    const float inverse = 1.0f / s.scale;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < (u32)n; i += gridDim.x * blockDim.x) {
        const int q = whole(y[i], inverse, s.zero);
        dh[i] = q > LO && q < HI ? dy[i] : 0.0f;
    }
}
