/* The kernels over bytes for x86-64 with AVX-512 and its VNNI: 64 products and their sums an instruction. */
#include "fast_int8_set.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,tune=haswell")
#endif

#define LIFTS 1
#define WIDENS 0
#define OWN_PRODUCT "fast_int8_vnni_product.h"
typedef int8_t byte;
typedef __m512i va;
#define ZERO _mm512_setzero_si512()

INLINE int32_t word_at(const int8_t *p)
{
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

typedef struct pv { /* biases and multipliers of 16 channels */
    __m512i bias, even, odd;
} pv;

INLINE pv put_load(const uint8_t *bias, const uint8_t *scale)
{
    const __m512i m = _mm512_loadu_si512(scale);
    return (pv){_mm512_loadu_si512(bias), m, _mm512_srli_epi64(m, 32)};
}

INLINE void store_held(__m512i v, ln_quantum q, int8_t *y)
{
    const __m128i b = _mm_max_epi8(_mm512_cvtsepi32_epi8(v), _mm_set1_epi8((int8_t)q.lo));
    _mm_storeu_si128((__m128i *)(void *)y, _mm_min_epi8(b, _mm_set1_epi8((int8_t)q.hi)));
}

/* Of 16 channels those in `live`. */
INLINE void store_some(__m512i v, ln_quantum q, int8_t *y, __mmask16 live)
{
    const __m128i b = _mm_max_epi8(_mm512_cvtsepi32_epi8(v), _mm_set1_epi8((int8_t)q.lo));
    const __m128i c = _mm_min_epi8(b, _mm_set1_epi8((int8_t)q.hi));
    _mm_mask_storeu_epi8(y, live, _mm_xor_si128(c, _mm_set1_epi8((int8_t)q.flip)));
}

/* 64 narrowed bytes, in their order, of which those in `live` are stored */
INLINE void store64(__m512i b, ln_quantum q, int8_t *y, __mmask64 live)
{
    const __m512i c = _mm512_max_epi8(b, _mm512_set1_epi8((int8_t)q.lo));
    const __m512i d = _mm512_min_epi8(c, _mm512_set1_epi8((int8_t)q.hi));
    _mm512_mask_storeu_epi8(y, live, _mm512_xor_si512(d, _mm512_set1_epi8((int8_t)q.flip)));
}

INLINE __m512i words_of(__m512i a, __m512i b, ln_quantum q)
{
    return _mm512_sra_epi16(_mm512_packs_epi32(a, b), _mm_cvtsi32_si128((int)q.shift));
}

/* 64 results of requant to 64 bytes; of each 16 bytes four come from each vector */
INLINE __m512i narrowed(__m512i a, __m512i b, __m512i c, __m512i d, ln_quantum q)
{
    return _mm512_packs_epi16(words_of(a, b, q), words_of(c, d, q));
}

/* 2^shift (z + requant(s[j], scale[j])) for 16 channels, and a rest that the shift drops. With the sum doubled that is the upper
 * half of a product of 64 bits. */
INLINE __m512i requant(__m512i s, const pv *p, ln_quantum q)
{
    const __m512i a = _mm512_add_epi32(s, s);
    const __m512i half = _mm512_set1_epi64(((int64_t)2 * q.z + 1) * ((int64_t)1 << (31 + q.shift)));
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(a, p->even), half);
    const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(a, 32), p->odd), half);
    return _mm512_mask_shuffle_epi32(odd, 0x5555, even, 0xF5);
}

INLINE __m512i shifted(__m512i v, ln_quantum q)
{
    return _mm512_sra_epi32(v, _mm_cvtsi32_si128((int)q.shift));
}

INLINE void put16(const int32_t *s, const pv *p, ln_quantum q, int8_t *y)
{
    store_held(shifted(requant(_mm512_add_epi32(_mm512_loadu_si512(s), p->bias), p, q), q), q, y);
}

/* Sums of V panels side by side, which have their biases, to bytes: narrowed together. */
INLINE void put_vectors(const __m512i *s, const pv *p, ln_quantum q, int8_t *y, const int V, uint32_t live)
{
    const __m512i r = requant(s[0], p, q);
    if (V == 1) {
        store_some(shifted(r, q), q, y, (__mmask16)((1u << live) - 1));
        return;
    }
    const __m512i next = requant(s[1], p + 1, q);
    if (V == 2) {
        const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
        const __m256i b = _mm256_permutevar8x32_epi32(_mm512_cvtsepi16_epi8(words_of(r, next, q)), order);
        const __m256i c = _mm256_min_epi8(_mm256_max_epi8(b, _mm256_set1_epi8((int8_t)q.lo)), _mm256_set1_epi8((int8_t)q.hi));
        _mm256_storeu_si256((__m256i *)(void *)y, _mm256_xor_si256(c, _mm256_set1_epi8((int8_t)q.flip)));
        return;
    }
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i b = narrowed(r, next, requant(s[2], p + 2, q), requant(s[3], p + 3, q), q);
    store64(_mm512_permutexvar_epi32(order, b), q, y, ~(__mmask64)0);
}

/* Bytes of two taps side by side, as 16-bit numbers, for each of 16 channels. */
typedef __m512i dw_pair, dw_sums;
#define DW_ZERO ZERO

INLINE __m128i pixel(const void *p)
{
    return _mm_loadu_si128(p);
}

INLINE dw_pair dw_side_by_side(__m128i a, __m128i b)
{
    return _mm512_cvtepi8_epi16(_mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b)));
}

INLINE dw_sums dw_dot(dw_sums s, dw_pair x, dw_pair w)
{
    return _mm512_dpwssd_epi32(s, x, w);
}

/* y[j] = clamp(z + ((s[j] + c) >> shift), lo, hi) for 16 sums */
INLINE void shift16(dw_sums s, int32_t c, ln_quantum q, int8_t *y)
{
    const __m512i v = shifted(_mm512_add_epi32(s, _mm512_set1_epi32(c)), q);
    store_held(_mm512_add_epi32(v, _mm512_set1_epi32(q.z)), q, y);
}

INLINE dw_pair dw_twice(int32_t two) /* the same two for every channel */
{
    return _mm512_set1_epi32(two);
}

INLINE dw_sums dw_times128(dw_sums s)
{
    return _mm512_slli_epi32(s, 7);
}

#define PRODUCTS 64
#define WINO_PRODUCTS 32
#define WIDE 16
#define WIDE_LOAD(p) _mm256_cvtepi8_epi16(pixel(p))
#define SUMS 16
#define WINO_MOST 16
#define WINO_TILES(T) T(4) T(8) T(16)
#define PAIR(p) _mm512_set1_epi32(word_at((const int8_t *)(p)))
#define ADD_PAIRS(s, w, x) _mm512_dpwssd_epi32(s, x, _mm512_loadu_si512(w))

/* ---- depthwise: along a line, pixels and channels are one row of bytes, of which 64 are worked on together. Of four taps
 * the bytes are put side by side; a vector then has four of each 16 neighbours. Where there are three lines of taps, the
 * four are a column, of which the upper three are for one line of y and the lower three for the next. */

typedef struct dw_group {
    size_t at[4]; /* its taps */
    __m512i w[2][4];
} dw_group;

enum { DW_GROUPS = LN_BYTE_TAPS / 4, DW_BYTES = 64 + LN_PANEL };

INLINE void side_by_side(__m512i a, __m512i b, __m512i c, __m512i d, __m512i *x)
{
    const __m512i ab = _mm512_unpacklo_epi8(a, b), cd = _mm512_unpacklo_epi8(c, d);
    const __m512i ab8 = _mm512_unpackhi_epi8(a, b), cd8 = _mm512_unpackhi_epi8(c, d);
    x[0] = _mm512_unpacklo_epi16(ab, cd);
    x[1] = _mm512_unpackhi_epi16(ab, cd);
    x[2] = _mm512_unpacklo_epi16(ab8, cd8);
    x[3] = _mm512_unpackhi_epi16(ab8, cd8);
}

/* Bytes f, f + apart ... of the first `lines` lines of y; f: how many of them come before */
INLINE void dw_bytes(const ln_depthwise8 *d, const dw_group *g, const dw_group *end, const pv *of, const int8_t *x, int8_t *y,
                     size_t f, size_t apart, const int lines)
{
    const ln_quantum q = d->q;
    const size_t n = (size_t)d->Wo * d->C;
    for (; f < n; f += apart) {
        __m512i s[2][4], four[4];
        UNROLL
        for (int v = 0; v < 4; v++) s[0][v] = s[1][v] = of[v].bias;
        for (const dw_group *k = g; k < end; k++) {
            const int8_t *at = x + f;
            side_by_side(_mm512_loadu_si512(at + k->at[0]), _mm512_loadu_si512(at + k->at[1]),
                         _mm512_loadu_si512(at + k->at[2]), _mm512_loadu_si512(at + k->at[3]), four);
            UNROLL
            for (int v = 0; v < 4; v++) {
                s[0][v] = _mm512_dpbusd_epi32(s[0][v], four[v], k->w[0][v]);
                if (lines == 2) s[1][v] = _mm512_dpbusd_epi32(s[1][v], four[v], k->w[1][v]);
            }
        }
        UNROLL
        for (int i = 0; i < lines; i++) {
            UNROLL
            for (int v = 0; v < 4; v++) s[i][v] = requant(s[i][v], of + v, q);
            store64(narrowed(s[i][0], s[i][1], s[i][2], s[i][3], q), q, y + i * n + f, ~(__mmask64)0 >> (n - f < 64 ? 64 - (n - f) : 0));
        }
    }
}

/* Biases, multipliers and weights of the 64 channels from o on, where 0 follows the last. Panels are read as if all had 16
 * channels, as by put_load; what is too much is written over. */
static void dw_take(const ln_depthwise8 *d, const uint8_t *w, uint32_t o, int32_t (*put)[DW_BYTES], int8_t (*taps)[DW_BYTES])
{
    for (uint32_t i = 0, n; i < 64; i += n, o = o + n < d->C ? o + n : 0) {
        const uint32_t in = o % LN_PANEL, first = o - in, live = d->C - first < LN_PANEL ? d->C - first : LN_PANEL;
        const uint32_t width = (live + 3) & ~3u;
        const uint8_t *from = w + first * (size_t)(8 + d->taps);
        n = live - in;
        __builtin_memcpy(put[0] + i, from + 4 * in, 4 * LN_PANEL);
        __builtin_memcpy(put[1] + i, from + 4 * (width + in), 4 * LN_PANEL);
        from += 8 * (size_t)width + in;
        for (uint32_t t = 0; t < d->taps; t++) __builtin_memcpy(taps[t] + i, from + t * (size_t)width, LN_PANEL);
    }
}

static void depthwise8(const ln_depthwise8 *d, const uint8_t *w, const int8_t *x, int8_t *y, uint32_t row,
                       uint32_t row_end, uint32_t panel, uint32_t panel_end)
{
    const uint32_t taps = d->taps, across = d->across;
    const uint32_t pairs = taps == 3 * across && d->tap[across] == d->step_i && across <= DW_GROUPS;
    const uint32_t groups = pairs ? across : (taps + 3) / 4;
    const size_t bytes = (size_t)d->C & (0 - (size_t)d->C), apart = bytes < 64 ? 64 / bytes * d->C : d->C;
    (void)panel, (void)panel_end;
    for (size_t f = 0; f < apart && f < (size_t)d->Wo * d->C; f += 64) {
        int8_t weights[LN_BYTE_TAPS + 1][DW_BYTES]; /* and one of zeros */
        int32_t put[2][DW_BYTES];
        dw_group of[DW_GROUPS];
        pv p[4];
        dw_take(d, w, (uint32_t)(f % d->C), put, weights);
        __builtin_memset(weights[taps], 0, DW_BYTES);
        for (int v = 0; v < 4; v++) {
            int32_t mine[2][16];
            for (int k = 0; k < 16; k++)
                for (int b = 0; b < 2; b++) mine[b][k] = put[b][k / 4 * 16 + 4 * v + k % 4];
            p[v] = put_load((const uint8_t *)mine[0], (const uint8_t *)mine[1]);
        }
        for (uint32_t k = 0; k < groups; k++) {
            const int8_t *from[4];
            for (uint32_t b = 0; b < 4; b++) {
                const uint32_t t = pairs ? k + b * across : 4 * k + b;
                from[b] = weights[t < taps ? t : taps];
                of[k].at[b] = t < taps ? d->tap[t] : pairs ? d->tap[k] + 3 * d->step_i : 0;
            }
#define W(b) _mm512_loadu_si512(from[b])
            side_by_side(W(0), W(1), W(2), W(3), of[k].w[0]);
            side_by_side(W(3), W(0), W(1), W(2), of[k].w[1]);
#undef W
            for (int v = 0; v < 4; v++) /* x is x + 128 */
                p[v].bias = _mm512_sub_epi32(p[v].bias, _mm512_dpbusd_epi32(ZERO, _mm512_set1_epi8(-128), of[k].w[0][v]));
        }
        for (uint32_t i = row; i < row_end; i++) {
            const int8_t *at = x + i * d->step_i;
            int8_t *to = y + (size_t)i * d->Wo * d->C;
            if (pairs && i + 1 < row_end) {
                dw_bytes(d, of, of + groups, p, at, to, f, apart, 2);
                i++;
                continue;
            }
            for (uint32_t k = 0; pairs && k < groups; k++) of[k].at[3] = 0; /* there need be no such line */
            dw_bytes(d, of, of + groups, p, at, to, f, apart, 1);
        }
    }
}

/* ---- floats to bytes: rounding moves them by a half away from zero, and cuts */

INLINE __m512i cut(const float *x, __m512 inverse)
{
    const __m512 t = _mm512_min_ps(_mm512_mul_ps(_mm512_loadu_ps(x), inverse), _mm512_set1_ps(512.0f));
    const __m512i sign = _mm512_set1_epi32(-0x7FFFFFFF - 1), half = _mm512_castps_si512(_mm512_set1_ps(0.5f));
    const __m512i away = _mm512_ternarylogic_epi32(_mm512_castps_si512(t), sign, half, 0xEA); /* t & sign | half */
    return _mm512_cvttps_epi32(_mm512_add_ps(t, _mm512_castsi512_ps(away))); /* the least int32_t, where it is less */
}

/* z + x inverse; 0 where one is not finite: 0 times that is not 0 */
static int enter8(const float *x, int8_t *y, size_t n, float inverse, int32_t z)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512 by = _mm512_set1_ps(inverse);
    __m512 nothing = _mm512_setzero_ps();
    for (size_t i = 0; i < n; i += 64) {
        float some[64] = {0};
        const float *from = x + i;
        const size_t left = n - i;
        if (left < 64) from = __builtin_memcpy(some, from, left * sizeof *from);
        UNROLL
        for (int k = 0; k < 64; k += 16) nothing = _mm512_fmadd_ps(_mm512_loadu_ps(from + k), _mm512_setzero_ps(), nothing);
        const __m512i zero = _mm512_set1_epi16((int16_t)z);
        const __m512i a = _mm512_adds_epi16(_mm512_packs_epi32(cut(from, by), cut(from + 16, by)), zero);
        const __m512i b = _mm512_adds_epi16(_mm512_packs_epi32(cut(from + 32, by), cut(from + 48, by)), zero);
        const __m512i bytes = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(a, b));
        _mm512_mask_storeu_epi8(y + i, ~(__mmask64)0 >> (left < 64 ? 64 - left : 0), bytes);
    }
    return _mm512_cmp_ps_mask(nothing, _mm512_setzero_ps(), _CMP_EQ_OQ) == 0xFFFF;
}

#define OWN_ENTER
#define OWN_DEPTHWISE
#define DEPTHWISE_LIFTS 1
#define DW_PIXEL __m128i
#define DW_NONE _mm_setzero_si128()
#define INT8 ln_int8_vnni
#define INT8_NAME "vnni"
#include "fast_int8_kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
