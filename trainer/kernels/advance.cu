/* advance: the end of a (micro-)step. The norm of the gradients, a row of the history, and Step for the next one.
 *   norm = sqrt(sum partials)              history[cursor] = loss, correct, norm, lr
 *   micro += 1; cursor += 1; after an update t += 1 and lr = rates[t - 1]
 * step (1)  rates (rate_count), NULL: lr stays  partials (S) float64, S = 0: no update was made and the norm is 0
 * norm, loss float32 (1), correct int32 (1), each may be NULL   history (history_rows, 4) float32, NULL: none
 * Launch    <<<1, a multiple of 32>>>, once a step, after everything else
 * Order     partials in ascending order in each thread, in float64, then block_sum
 */
#include "common.cuh"

extern "C" __global__ void advance_f32(
    Step *step, const float *rates, const double *partials, float *norm, const float *loss, const int *correct,
    float *history, int rate_count, int S, int history_rows, int updated)
{
    __shared__ double box[32];
    double sum = 0.0;
    for (int s = threadIdx.x; s < S; s += blockDim.x) sum += partials[s];
    const float length = (float)sqrt(block_sum(sum, box));
    if (threadIdx.x) return;
    if (norm && S > 0) *norm = length;
    if (history && step->cursor >= 0 && step->cursor < history_rows) {
        float *row = history + 4 * (size_t)step->cursor;
        row[0] = loss ? *loss : 0.0f;
        row[1] = correct ? (float)*correct : 0.0f;
        row[2] = length;
        row[3] = step->lr;
    }
    const u64 micro = step_micro(step) + 1;
    step->micro[0] = (u32)micro;
    step->micro[1] = (u32)(micro >> 32);
    step->cursor++;
    if (updated) {
        step->t++;
        if (rates) step->lr = rates[min(max(step->t, 1), rate_count) - 1];
    }
}
