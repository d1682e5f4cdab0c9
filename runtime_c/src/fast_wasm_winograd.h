/* The transforms of F(4 x 4, 3 x 3) for engines of WebAssembly, which make a constant anew at each use and an address by
 * an instruction of its own where it is no constant offset from another: one constant is enough, 4, an address serves
 * two vectors, and a tile goes from registers to where it belongs. Part of fast_winograd.h, which has the formulas. */

/* A constant that is not known as one; an address that offsets begin at. No vector: clang 19 has no place for it. */
#define KEEP(v) __asm__("" : "+r"(v))

INLINE void six_to_points(vf four, const vf *d, vf *t) /* t = B' d */
{
    const vf a = NMADD(four, d[2], d[4]), b = NMADD(four, d[1], d[3]);
    const vf c = d[4] - d[2], e = d[3] - d[1], e2 = e + e;
    t[0] = MADD(four, d[0] - d[2], c);
    t[1] = a + b;
    t[2] = a - b;
    t[3] = c + e2;
    t[4] = c - e2;
    t[5] = NMADD(four, e, d[5] - d[3]);
}

INLINE void four_from_points(vf four, const vf *d, vf *t) /* t = A' d */
{
    const vf s = d[1] + d[2], e = d[1] - d[2], p = d[3] + d[4], q = d[3] - d[4], q2 = q + q;
    t[0] = d[0] + s + p;
    t[1] = q2 + e;
    t[2] = MADD(four, p, s);
    t[3] = MADD(four, q2, e + d[5]);
}

static void inputs_to_points_4(const float *const *at, uint32_t C, float *to, size_t step)
{
    enum { N = 6, VECTORS = 2 };
    float number = 4.0f;
    KEEP(number);
    const vf four = SPLAT(number);
    for (uint32_t c = 0; c < C; c += VECTORS * LANES, to += VECTORS * LANES) {
        float h[VECTORS * N * N * LANES], *line = h;
        const float *const *pixel = at;
        for (int j = 0; j < N; j++, line += LANES, pixel++) {
            const float *from[N];
            KEEP(line);
            KEEP(pixel);
            UNROLL
            for (int i = 0; i < N; i++) from[i] = pixel[i * N] + c;
            UNROLL
            for (int v = 0; v < VECTORS; v++) {
                vf d[N], t[N];
                UNROLL
                for (int i = 0; i < N; i++) d[i] = LOAD(from[i] + v * LANES);
                six_to_points(four, d, t);
                UNROLL
                for (int i = 0; i < N; i++) STORE(line + (v * N + i) * N * LANES, t[i]);
            }
        }
        float *put = to;
        line = h;
        for (int i = 0; i < N; i++, line += N * LANES) {
            float *point[N];
            KEEP(line);
            UNROLL
            for (int j = 0; j < N; j++, put += step) point[j] = put;
            UNROLL
            for (int v = 0; v < VECTORS; v++) {
                vf d[N], t[N];
                UNROLL
                for (int j = 0; j < N; j++) d[j] = LOAD(line + (v * N * N + j) * LANES);
                six_to_points(four, d, t);
                UNROLL
                for (int j = 0; j < N; j++) STORE(point[j] + v * LANES, t[j]);
            }
        }
    }
}

/* Channels of a tile, biased, clamped, of each 2 x 2 the largest where `pool` is 1, or the sum with `other`, NULL: with
 * nothing, to a line of outputs each `line` floats, and of an output each `column`. The bias is added in point 1, which
 * is in each output once. */
static void outputs_from_points_4(const ln_finish *f, const float *from, size_t step, const float *bias,
                                  uint32_t channels, uint32_t pool, const float *other, float *to, size_t line,
                                  size_t column)
{
    enum { N = 6, M = 4 };
    float number = 4.0f;
    KEEP(number);
    const vf four = SPLAT(number);
    for (uint32_t o = 0; o < channels; o += LANES) {
        float h[M * N * LANES], *at = h;
        const vf b = LOAD(bias + o), lo = SPLAT(f->lo), hi = SPLAT(f->hi);
        const float *point = from + o;
        for (int j = 0; j < N; j++, point += step, at += LANES) {
            vf d[N], t[M];
            KEEP(at);
            UNROLL
            for (int i = 0; i < N; i++) d[i] = LOAD(point + (size_t)(i * N) * step);
            four_from_points(four, d, t);
            UNROLL
            for (int i = 0; i < M; i++) STORE(at + i * N * LANES, t[i]);
        }
        vf above[2] = {b, b};
        size_t put = o;
        at = h;
        for (int i = 0; i < M; i++, at += N * LANES) {
            vf d[N], t[M];
            KEEP(at);
            UNROLL
            for (int j = 0; j < N; j++) d[j] = LOAD(at + j * LANES);
            d[1] += b;
            four_from_points(four, d, t);
            if (pool) {
                t[0] = larger(t[0], t[1]);
                t[1] = larger(t[2], t[3]);
                if (i % 2 == 0) {
                    above[0] = t[0];
                    above[1] = t[1];
                    continue;
                }
                STORE(to + put, BELOW(hi, ABOVE(lo, larger(t[0], above[0]))));
                STORE(to + put + column, BELOW(hi, ABOVE(lo, larger(t[1], above[1]))));
                put += line;
                continue;
            }
            UNROLL
            for (int j = 0; j < M; j++) t[j] = BELOW(hi, ABOVE(lo, t[j]));
            if (other) {
                const vf sum_lo = SPLAT(f->sum_lo), sum_hi = SPLAT(f->sum_hi);
                const float *with = other + put;
                UNROLL
                for (int j = 0; j < M; j++, with += column) t[j] = BELOW(sum_hi, ABOVE(sum_lo, t[j] + LOAD(with)));
            }
            float *y = to + put;
            UNROLL
            for (int j = 0; j < M; j++, y += column) STORE(y, t[j]);
            put += line;
        }
    }
}
#undef KEEP
