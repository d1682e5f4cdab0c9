/* The kernels over bytes for x86-64 with AVX-512 and its VNNI: 64 products and their sums an instruction. */
#include "fast_int8_set.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,tune=haswell")
#endif

#define OUTS 16
#define LIFTS 1
#define WIDENS 0
typedef int8_t byte;
#define VECTORS 4
#define TILE_PANELS 4
#define TILES8(T) \
    T(1, 1) T(4, 1) T(12, 1) T(1, 2) T(4, 2) T(8, 2) T(1, 4) T(4, 4) T(6, 4)
typedef __m512i va, vx;
#define ZERO _mm512_setzero_si512()
#define SPLAT4(p) _mm512_set1_epi32(word_at(p))
#define DOT(s, w, x) _mm512_dpbusd_epi32(s, x, _mm512_loadu_si512(w))
#define FOLD(to, s, v)                                                  \
    do {                                                                \
        UNROLL                                                          \
        for (int f = 0; f < (v); f++) _mm512_storeu_si512((to) + f * 16, (s)[f]); \
    } while (0)

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
    _mm_mask_storeu_epi8(y, live, _mm_min_epi8(b, _mm_set1_epi8((int8_t)q.hi)));
}

/* z + requant(s[j], scale[j]) for 16 channels. With the sum doubled the result is the upper half of a product of 64 bits. */
INLINE __m512i requant(__m512i s, const pv *p, ln_quantum q)
{
    const __m512i a = _mm512_add_epi32(s, s);
    const __m512i half = _mm512_set1_epi64(((int64_t)2 * q.z + 1) * ((int64_t)1 << 31));
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(a, p->even), half);
    const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(a, 32), p->odd), half);
    return _mm512_mask_shuffle_epi32(odd, 0x5555, even, 0xF5);
}

INLINE void put16(const int32_t *s, const pv *p, ln_quantum q, int8_t *y)
{
    store_held(requant(_mm512_add_epi32(_mm512_loadu_si512(s), p->bias), p, q), q, y);
}

/* Sums of V panels side by side, which have their biases, to bytes: narrowed together. */
INLINE void put_vectors(const __m512i *s, const pv *p, ln_quantum q, int8_t *y, const int V)
{
    const __m512i r = requant(s[0], p, q);
    if (V == 1) {
        store_held(r, q, y);
        return;
    }
    const __m512i a = _mm512_packs_epi32(r, requant(s[1], p + 1, q));
    if (V == 2) {
        const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
        const __m256i b = _mm256_permutevar8x32_epi32(_mm512_cvtsepi16_epi8(a), order);
        const __m256i c = _mm256_max_epi8(b, _mm256_set1_epi8((int8_t)q.lo));
        _mm256_storeu_si256((__m256i *)(void *)y, _mm256_min_epi8(c, _mm256_set1_epi8((int8_t)q.hi)));
        return;
    }
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i b = _mm512_packs_epi16(a, _mm512_packs_epi32(requant(s[2], p + 2, q), requant(s[3], p + 3, q)));
    const __m512i c = _mm512_max_epi8(_mm512_permutexvar_epi32(order, b), _mm512_set1_epi8((int8_t)q.lo));
    _mm512_storeu_si512(y, _mm512_min_epi8(c, _mm512_set1_epi8((int8_t)q.hi)));
}

INLINE __m512i most_of(__m512i a, __m512i b)
{
    return _mm512_max_epi32(a, b);
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
INLINE void shift16(dw_sums s, int32_t c, uint32_t shift, ln_quantum q, int8_t *y)
{
    const __m512i v = _mm512_sra_epi32(_mm512_add_epi32(s, _mm512_set1_epi32(c)), _mm_cvtsi32_si128((int)shift));
    store_held(_mm512_add_epi32(v, _mm512_set1_epi32(q.z)), q, y);
}

INLINE dw_pair dw_twice(int32_t two) /* the same two for every channel */
{
    return _mm512_set1_epi32(two);
}

/* ln_rounded of x[i] inverse, 16 times */
INLINE dw_sums dw_rounded(const float *x, float inverse)
{
    const __m512 product = _mm512_mul_ps(_mm512_loadu_ps(x), _mm512_set1_ps(inverse));
    const __m512 t = _mm512_min_ps(_mm512_set1_ps(512.0f), _mm512_max_ps(_mm512_set1_ps(-512.0f), product));
    const __m512i sign = _mm512_set1_epi32(-0x7FFFFFFF - 1), half = _mm512_set1_epi32(0x3F000000);
    const __m512i away = _mm512_or_si512(_mm512_and_si512(_mm512_castps_si512(t), sign), half);
    const __m512 moved = _mm512_add_ps(t, _mm512_castsi512_ps(away));
    return _mm512_maskz_cvttps_epi32(_mm512_cmp_ps_mask(t, t, _CMP_ORD_Q), moved);
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

/* ---- depthwise: of four taps, or of a column of three, a channel's bytes stand side by side */

typedef struct fours {
    __m512i each; /* which byte of 16 goes to each of 64 */
} fours;

INLINE __m512i four(fours f, const int8_t *a, const int8_t *b, const int8_t *c)
{
    const __m512i first = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(pixel(a)), f.each);
    const __m512i two = _mm512_mask_shuffle_epi8(first, 0x2222222222222222, _mm512_broadcast_i32x4(pixel(b)), f.each);
    return _mm512_mask_shuffle_epi8(two, 0x4444444444444444, _mm512_broadcast_i32x4(pixel(c)), f.each);
}

INLINE __m512i with_fourth(fours f, __m512i three, const int8_t *d)
{
    return _mm512_mask_shuffle_epi8(three, 0x8888888888888888, _mm512_broadcast_i32x4(pixel(d)), f.each);
}

/* What stands in the fourth place of a column is multiplied by 0. */
#define COLUMN(p) four(f, p, (p) + down, (p) + 2 * down)

/* One line, 3 x 3 taps, stride 1 or 2: a column is put together once for all positions that see it. */
INLINE void dw_columns(const ln_depthwise8 *d, fours f, const int8_t *at, const __m512i *w, const pv *p, int8_t *y,
                       __mmask16 live)
{
    const size_t down = d->tap[3], right = d->tap[1];
    const int apart = d->step_j != right;
    __m512i left = COLUMN(at), middle = COLUMN(at + right);
    for (uint32_t j = 0; j < d->Wo; j++, at += d->step_j, y += d->C) {
        if (apart) middle = COLUMN(at + right);
        const __m512i last = COLUMN(at + 2 * right);
        __m512i s = _mm512_dpbusd_epi32(p->bias, left, w[0]);
        s = _mm512_dpbusd_epi32(s, middle, w[1]);
        s = _mm512_dpbusd_epi32(s, last, w[2]);
        store_some(requant(s, p, d->q), d->q, y, live);
        left = apart ? last : middle;
        middle = last;
    }
}

INLINE void dw_any(const ln_depthwise8 *d, fours f, const int8_t *at, const __m512i *w, const pv *p, int8_t *y,
                   __mmask16 live)
{
    for (uint32_t j = 0; j < d->Wo; j++, at += d->step_j, y += d->C) {
        __m512i s = p->bias;
        for (uint32_t t = 0; t < d->taps; t += 4) { /* those that do not exist have weights of 0 */
            const uint32_t most = d->taps - 1;
            const int8_t *b = at + d->tap[t + 1 < most ? t + 1 : most], *c = at + d->tap[t + 2 < most ? t + 2 : most];
            const __m512i x = with_fourth(f, four(f, at + d->tap[t], b, c), at + d->tap[t + 3 < most ? t + 3 : most]);
            s = _mm512_dpbusd_epi32(s, x, w[t / 4]);
        }
        store_some(requant(s, p, d->q), d->q, y, live);
    }
}

static void depthwise8(const ln_depthwise8 *d, const uint8_t *w, const int8_t *x, int8_t *y, uint32_t row,
                       uint32_t row_end, uint32_t panel, uint32_t panel_end)
{
    const __m128i bytes = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const fours f = {_mm512_mullo_epi32(_mm512_cvtepu8_epi32(bytes), _mm512_set1_epi32(0x01010101))};
    const int columns = d->taps == 9 && d->tap[1] == d->C && (d->step_j == d->C || d->step_j == 2 * (size_t)d->C)
                     && d->tap[3] != 3 * (size_t)d->C && d->tap[6] == 2 * d->tap[3] && d->tap[8] == d->tap[6] + 2 * d->tap[1];
    for (uint32_t q = panel; q < panel_end; q++) {
        const uint32_t o = q * LN_PANEL, live = d->C - o < LN_PANEL ? d->C - o : LN_PANEL, width = (live + 3) & ~3u;
        const uint8_t *wq = w + q * (size_t)LN_PANEL * (8 + d->taps);
        pv p = put_load(wq, wq + 4 * (size_t)width);
        __m512i weights[LN_BYTE_TAPS / 4];
        wq += 8 * (size_t)width;
        for (uint32_t g = 0; g < (columns ? 3 : (d->taps + 3) / 4); g++) {
            int8_t of[4][LN_PANEL] = {{0}};
            for (uint32_t k = 0; k < 4; k++) {
                const uint32_t t = columns ? 3 * k + g : 4 * g + k;
                if (t < d->taps) __builtin_memcpy(of[k], wq + t * (size_t)width, width);
            }
            weights[g] = with_fourth(f, four(f, of[0], of[1], of[2]), of[3]);
            p.bias = _mm512_sub_epi32(p.bias, _mm512_dpbusd_epi32(ZERO, _mm512_set1_epi8(-128), weights[g])); /* x is x + 128 */
        }
        for (uint32_t i = row; i < row_end; i++) {
            const int8_t *at = x + i * d->step_i + o;
            int8_t *to = y + (size_t)i * d->Wo * d->C + o;
            const __mmask16 some = (__mmask16)((1u << live) - 1);
            if (columns) dw_columns(d, f, at, weights, &p, to, some);
            else dw_any(d, f, at, weights, &p, to, some);
        }
    }
}

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
