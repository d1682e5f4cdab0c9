/* int8_weights: the whole numbers of a layer, from the weights of this step (trainer/int8/scheme.py, `layer`).
 *   int8_peaks    peak[o] = max_k |w[o,k]| / 127
 *   int8_weights  s(w) = peak[o], coarser where the bias would be too large for its sum; q = round(w / s(w))
 *                 B[o] = round(bias[o] / (s(x) s(w))) - zero(x) sum_k q    M[o] / 2^31 = s(x) s(w) / s(y)
 *                 y's scale grows where some M would be above 1
 * w (O,K)   float32, element k of channel o at o so + k sk   bias (O), NULL: none   peak (O)   x_scale, y_scale: Scale
 * numbers (2 O + 4) int32 (int8.cuh)   words (O, taps, W) int32, four int8 of neighbouring input channels each, 0 past
 * the last of them (K = taps C, W = ceil(C / 4)); NULL: not wanted   bytes (K,O) int8, NULL: not wanted
 * rounded: the float32 that the int8 stand for, laid out as w; NULL: not wanted
 * Macro     ACT, the layer's activation: none, relu or relu6
 * Launch    grid (O), block (128): a block has a channel; y_scale is only read, its new value is in numbers
 * Order     sums of whole numbers, maxima; double as NumPy has it
 * Cost      reads w twice (peaks once more), writes each output once
 */
#include "int8.cuh"

extern "C" __global__ void __launch_bounds__(128) int8_peaks(const float *__restrict__ w, float *peak, int K, int so, int sk)
{
    wait_for_last_launch();
    __shared__ float box[32];
    const float *own = w + (size_t)blockIdx.x * so;
    float most = 0.0f;
    for (int k = threadIdx.x; k < K; k += blockDim.x) most = fmaxf(most, fabsf(own[(size_t)k * sk]));
    most = block_max(most, box);
    if (threadIdx.x == 0) peak[blockIdx.x] = most / 127.0f;
}

__device__ __forceinline__ int rounded_weight(float w, float step)
{
    return (int)fmin(fmax(rint((double)w / (double)step), -(double)MOST_WEIGHT), (double)MOST_WEIGHT);
}

extern "C" __global__ void __launch_bounds__(128) int8_weights(
    const float *__restrict__ w, const float *__restrict__ bias, const float *__restrict__ peak,
    const Scale *x_scale, const Scale *y_scale, int *numbers, int *words, i8 *bytes, float *rounded,
    int O, int K, int so, int sk, int C, int W)
{
    wait_for_last_launch();
    __shared__ float box[32];
    __shared__ int counts[32];
    const int o = blockIdx.x;
    const float *own = w + (size_t)o * so;
    const Scale sx = *x_scale;
    Scale sy = *y_scale;
    float most_peak = 0.0f;
    for (int i = threadIdx.x; i < O; i += blockDim.x) most_peak = fmaxf(most_peak, peak[i]);
    most_peak = block_max(most_peak, box);
    sy.scale = wider(sy.scale, (double)sx.scale * (double)most_peak);

    const double most = (double)sy.scale / (double)sx.scale, b = bias ? (double)bias[o] : 0.0;
    double found = peak[o] > 0.0f ? (double)peak[o] : most / 32768.0, B;
    float step;
    int total;
    for (;;) {
        step = (float)fmin(found, most);
        int sizes = 0, sum = 0;
        for (int k = threadIdx.x; k < K; k += blockDim.x) {
            const int q = rounded_weight(own[(size_t)k * sk], step);
            sizes += q < 0 ? -q : q;
            sum += q;
        }
        total = block_sum(sizes, counts);
        sum = block_sum(sum, counts);
        B = rint(b / ((double)sx.scale * (double)step)) - (double)sx.zero * (double)sum;
        if (!(fabs(B) + 128.0 * total >= 1073741824.0 && found < most)) break;
        found *= 2.0;
    }
    const double room = 1073741823.0 - 128.0 * total;
    const int M = multiplier(fmin((double)sx.scale * (double)step / (double)sy.scale, 1.0));
    if (threadIdx.x == 0) {
        numbers[o] = (int)fmin(fmax(B, -room), room);
        numbers[O + o] = M;
    }
    if (o == 0 && threadIdx.x == 0) {
        numbers[2 * O] = lowest(ACT, sy);
        numbers[2 * O + 1] = highest(ACT, sy);
        numbers[2 * O + 2] = __float_as_int(sy.scale);
        numbers[2 * O + 3] = sy.zero;
    }
    if (rounded || bytes) {
        const float unit = (float)((double)M * ((double)sy.scale / (double)sx.scale / 2147483648.0));
        for (int k = threadIdx.x; k < K; k += blockDim.x) {
            const int q = rounded_weight(own[(size_t)k * sk], step);
            if (rounded) rounded[(size_t)o * so + (size_t)k * sk] = (float)q * unit;
            if (bytes) bytes[(size_t)k * O + o] = (i8)q;
        }
    }
    if (words)
        for (int i = threadIdx.x; i < K / C * W; i += blockDim.x) {
            const int tap = i / W, c = 4 * (i - tap * W);
            int word = 0;
            for (int j = 0; j < 4 && c + j < C; j++)
                word |= byte_of(rounded_weight(own[(size_t)(tap * C + c + j) * sk], step), j);
            words[(size_t)o * (K / C * W) + i] = word;
        }
}
