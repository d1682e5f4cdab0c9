/* load: one batch from a data set that lies on the card: gathered, normalised, with its answers.
 *   s = order[cursor * batch + n]          x[n,i] = (set[s,i] - mean[i mod C]) / std[i mod C]
 *   target[n,j] = labels[s,j]              words of 4 bytes, int32 or float32 alike
 * set (count, D) bytes or float32   labels (count, T)   order int32, NULL: s = cursor * batch + n   x (rows, D) float32
 * target (rows, T), labels NULL: none wanted   mean, std (C), NULL: x = set
 * step: its cursor; NULL: 0. rows may be below batch at the end of a set. Past the end of the set its last sample
 * stands in: no launch reads outside.
 * Macro     VEC: 4 where D is a multiple of 4, else 1
 * Launch    grid: any; block: any
 * Aliasing  none
 * Order     one subtraction and one division a value, as the device does it: equal bits everywhere
 * Cost      D bytes (4 D for float32) read and 4 D written a sample
 */
#include "common.cuh"

enum { V = VEC };

__device__ __forceinline__ Pack<V> values(const float *p) { return load<V>(p); }

__device__ __forceinline__ Pack<V> values(const u8 *p)
{
    const u32 bytes = V == 4 ? *reinterpret_cast<const u32 *>(p) : *p;
    Pack<V> out;
#pragma unroll
    for (int k = 0; k < V; k++) out.v[k] = (float)(bytes >> 8 * k & 255);
    return out;
}

template <class T>
__device__ __forceinline__ void gather(
    const T *set, const u32 *labels, const int *order, const Step *step, const float *mean, const float *std, float *x,
    u32 *target, int rows, int batch, int count, int D, int C, int words)
{
    const u32 stride = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x, units = D / V;
    const int start = step ? step->cursor * batch : 0;
    for (u32 q = first; q < rows * units; q += stride) {
        const u32 n = q / units, i = (q - n * units) * V;
        const int place = min(start + (int)n, count - 1), s = order ? order[place] : place;
        Pack<V> v = values(set + (size_t)s * D + i);
        if (mean) {
            int c = C == 1 ? 0 : i % C;
#pragma unroll
            for (int k = 0; k < V; k++) {
                v.v[k] = (v.v[k] - mean[c]) / std[c];
                c = c + 1 == C ? 0 : c + 1;
            }
        }
        store(x + (size_t)n * D + i, v);
    }
    if (!labels) return;
    for (u32 i = first; i < (u32)(rows * words); i += stride) {
        const u32 n = i / words;
        const int place = min(start + (int)n, count - 1), s = order ? order[place] : place;
        target[i] = labels[(size_t)s * words + (i - n * words)];
    }
}

extern "C" __global__ void load_u8_f32(
    const u8 *__restrict__ set, const u32 *__restrict__ labels, const int *__restrict__ order,
    const Step *__restrict__ step, const float *__restrict__ mean, const float *__restrict__ std, float *__restrict__ x,
    u32 *__restrict__ target, int rows, int batch, int count, int D, int C, int words)
{
    gather(set, labels, order, step, mean, std, x, target, rows, batch, count, D, C, words);
}

extern "C" __global__ void load_f32_f32(
    const float *__restrict__ set, const u32 *__restrict__ labels, const int *__restrict__ order,
    const Step *__restrict__ step, const float *__restrict__ mean, const float *__restrict__ std, float *__restrict__ x,
    u32 *__restrict__ target, int rows, int batch, int count, int D, int C, int words)
{
    gather(set, labels, order, step, mean, std, x, target, rows, batch, count, D, C, words);
}
