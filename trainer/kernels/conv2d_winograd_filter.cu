/* conv2d_winograd_filter: the filters of conv2d_winograd.cu, transformed once a launch of it.
 *   u[c,e,o] = (G g G')[e], e = 0..15, g the 3 x 3 taps of (o,c); TURNED: of (c,o), by 180 degrees, for the data gradient
 * w (O,3,3,C) or, turned, (C,3,3,O)   u (C4,16,OP) scratch   float32
 * C4: C rounded up to a multiple of 4, OP: O rounded up to a block's channels; zeros in the rest
 *
 * Macro     TURNED 0 or 1
 * Launch    grid OP/8 * ceil(C/32) or, turned, OP/32 * ceil(C/8), block 256
 * Edges     any C, O      Aliasing  none      Order  fixed      Cost  36 C O bytes read, 64 C O written
 */
#include "common.cuh"

enum { ELEMENTS = 16 };

/* u = G g G', 16 elements of the 3 x 3 taps g */
__device__ __forceinline__ void transform_filter(const float (&g)[9], float (&u)[ELEMENTS])
{
    float t[4][3];
#pragma unroll
    for (int b = 0; b < 3; b++) {
        t[0][b] = g[b];
        t[1][b] = 0.5f * (g[b] + g[3 + b] + g[6 + b]);
        t[2][b] = 0.5f * (g[b] - g[3 + b] + g[6 + b]);
        t[3][b] = g[6 + b];
    }
#pragma unroll
    for (int a = 0; a < 4; a++) {
        u[4 * a] = t[a][0];
        u[4 * a + 1] = 0.5f * (t[a][0] + t[a][1] + t[a][2]);
        u[4 * a + 2] = 0.5f * (t[a][0] - t[a][1] + t[a][2]);
        u[4 * a + 3] = t[a][2];
    }
}

/* A block makes 32 x 8 filters. TURNED, o runs along the lanes in w as in u; else c does in w, and they change places
 * in shared memory, 4 elements at a time. */
extern "C" __global__ void __launch_bounds__(256) winograd_filter_f32(
    const float *__restrict__ w, float *__restrict__ u, int C, int O, int OP)
{
    wait_for_last_launch();
    enum { WIDE = TURNED ? 32 : 8, HIGH = 256 / WIDE }; /* outputs, channels */
    const int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 32;
    const int o0 = (int)blockIdx.x % (OP / WIDE) * WIDE, c0 = (int)blockIdx.x / (OP / WIDE) * HIGH;
    const int c = c0 + (TURNED ? row : lane), o = o0 + (TURNED ? lane : row);
    float g[9], e[ELEMENTS];
#pragma unroll
    for (int tap = 0; tap < 9; tap++) {
        const size_t at = TURNED ? ((size_t)c * 9 + 8 - tap) * O + o : ((size_t)o * 9 + tap) * C + c;
        g[tap] = c < C && o < O ? w[at] : 0.0f;
    }
    transform_filter(g, e);
#if !TURNED
    __shared__ float tile[4][HIGH][WIDE + 1];
#pragma unroll
    for (int turn = 0; turn < ELEMENTS; turn += 4) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 4; k++) tile[k][lane][row] = e[turn + k];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 4; k++) e[turn + k] = tile[k][(int)threadIdx.x / WIDE][(int)threadIdx.x % WIDE];
    }
#endif
    const int to = c0 + (int)threadIdx.x / WIDE;
    if (to >= (C + 3) / 4 * 4) return;
    u += (size_t)to * ELEMENTS * OP + o0 + (int)threadIdx.x % WIDE;
#pragma unroll
    for (int k = 0; k < ELEMENTS; k++) u[(size_t)k * OP] = e[k];
}
