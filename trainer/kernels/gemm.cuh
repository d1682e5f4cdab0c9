/* gemm.cuh: the matrix product all dense kernels are made of, C[m,n] = sum_k A[m,k] * B[k,n], tile by tile.
 *
 * A block owns BM x BN outputs and walks k in steps of BK. Two loaders bring the next step from memory into
 * registers while the threads multiply the present one out of shared memory, then store it into the other half of
 * the shared buffer. A thread owns TM x TN outputs, in groups of 4 x 4 that lie far apart, so that the lanes of a
 * warp read neighbouring float4. With KS > 1 the threads form KS slices that each take BK/KS of a step; their sums
 * are added at the end, in a fixed order: this keeps a block busy where few outputs have a long sum.
 *
 * In shared memory k comes first: A[k][m], B[k][n], rows padded by 4.
 *   ByRow   loads matrices that are contiguous along k: it transposes as it stores
 *   ByCol   loads matrices that are contiguous along m or n
 * Both take a Source, which says where a row or column lies, whether an element exists (if not it counts as 0), and
 * applies the activation's mask where the matrix is a gradient. V is 4 where every row starts at a multiple of
 * 16 bytes and has a multiple of 4 elements, else 1. A Source's elements are float (weights) or real (activations and
 * their gradients); in shared memory, in sums and in parts of sums all is float.
 *
 * A sum over k may be split over blocks (`splits` parts): either a second launch adds the parts (add_parts), or the
 * block that happens to be the last of its tile does (join_parts), always in the order of the parts.
 *
 * Order: a sum over k has one order for given tile, KS and splits, so equal inputs give equal bits.
 */
#pragma once
#include "common.cuh"

template <int BM_, int BN_, int BK_, int TM_, int TN_, int KS_, int BLOCKS_> struct Tile {
    enum {
        BM = BM_, BN = BN_, BK = BK_, TM = TM_, TN = TN_, KS = KS_,
        BLOCKS = BLOCKS_,                         /* at least on a multiprocessor: bounds the registers */
        SLICE = (BM / TM) * (BN / TN),            /* threads of a slice: they cover the tile once */
        THREADS = SLICE * KS,
        VM = TM < 4 ? TM : 4, VN = TN < 4 ? TN : 4, /* a thread's outputs come in groups of VM x VN */
        LANES = SLICE < 32 ? SLICE : 32,
        WIDE = BN / TN < 8 ? BN / TN : 8,         /* lanes of a warp along n, unless m is too short */
        LN = LANES / WIDE > BM / TM ? LANES / (BM / TM) : WIDE, LM = LANES / LN,
        WN = BN / TN / LN,                        /* warps along n */
        AP = BM + 4, BP = BN + 4,                 /* pitches of the rows in shared memory */
        TIGHT = TM * TN >= 64 && 65536 / (THREADS * BLOCKS) <= 128, /* no registers for a y beside each dy */
        PART = BM * BN + BM,                      /* floats of one block's part of a split sum: tile, column sums */
        HALF = BK * (AP + BP),
        SUMS = KS > 1 ? BM * BN * KS / 2 : 0,
        FLOATS = 2 * HALF > SUMS ? 2 * HALF : SUMS /* of shared memory */
    };
    static_assert(BM % TM == 0 && BN % TN == 0 && BK % KS == 0 && TM % VM == 0 && TN % VN == 0, "tile");
    static_assert(SLICE % LANES == 0 && (BN / TN) % LN == 0 && (BM / TM) % LM == 0, "lanes do not fill the tile");
    static_assert(LN % 2 == 0, "lanes stand in pairs along n");
};

/* n / d for n < 2^31 by a multiplication; calls_gemm.py computes mul and shift. */
struct Divisor { unsigned mul; int shift; };
__device__ __forceinline__ int divide(int n, Divisor d)
{
    return (int)((__umulhi((unsigned)n, d.mul) + (unsigned)n) >> d.shift);
}

/* The V values at p, or 0; a gradient dy is multiplied by act'(y), y standing `to_y` elements away. */
template <int V, int ACT_ID, class S>
__device__ __forceinline__ Pack<V> fetch(bool exists, const S *p, ptrdiff_t to_y, float alpha)
{
    Pack<V> r = fill<V>(0.0f);
    if (exists) {
        r = load<V>(p);
        if (ACT_ID != 0) {
            const Pack<V> y = load<V>(p + to_y);
#pragma unroll
            for (int j = 0; j < V; j++) r.v[j] = act_mask(ACT_ID, r.v[j], y.v[j], alpha);
        }
    }
    return r;
}

/* The same, but what waits for memory is left to settle(), which the loader calls when the threads have multiplied. */
template <int V, int ACT_ID> struct Unmasked {
    Pack<V> dy, y;
    float alpha;
};
template <int V, int ACT_ID> __device__ __forceinline__ Pack<V> settle(const Unmasked<V, ACT_ID> &u)
{
    Pack<V> r;
#pragma unroll
    for (int j = 0; j < V; j++) r.v[j] = act_mask(ACT_ID, u.dy.v[j], u.y.v[j], u.alpha);
    return r;
}
template <int V> __device__ __forceinline__ Pack<V> settle(const Pack<V> &r) { return r; }

template <bool LATE, int V, int ACT_ID> struct Fetch {
    typedef Pack<V> type;
    template <class S> static __device__ __forceinline__ type at(bool exists, const S *p, ptrdiff_t to_y, float alpha)
    {
        return fetch<V, ACT_ID>(exists, p, to_y, alpha);
    }
};
template <int V, int ACT_ID> struct Fetch<true, V, ACT_ID> {
    typedef Unmasked<V, ACT_ID> type;
    template <class S> static __device__ __forceinline__ type at(bool exists, const S *p, ptrdiff_t to_y, float alpha)
    {
        type u = {fill<V>(0.0f), fill<V>(0.0f), alpha};
        if (exists) {
            u.dy = load<V>(p);
            u.y = load<V>(p + to_y);
        }
        return u;
    }
};
/* What a Source of a loader L gives: fetched late where a thread has registers for a y beside each dy. */
template <class L, int ACT_ID> using Fetched = Fetch<ACT_ID != 0 && !L::TIGHT, L::V, ACT_ID>;

/* Where a block stands in its sum. `c` counts within a run of `end` elements; a convolution has one run for each tap
 * of its kernel, which moves the two matrices by a_offset and b_offset and asks rows for their bit `bit`. */
template <int BK> struct Straight {
    enum { a_offset = 0, b_offset = 0 };
    int c, end;
    __device__ __forceinline__ void next() { c += BK; }
};

/* ---- loaders. H: what the Source's get gives, a Pack or what settles to one. */

template <class T, int ROWS, int PITCH, int V_> struct ByRow {
    enum {
        TIGHT = T::TIGHT, V = V_, QUADS = T::BK / V, COUNT = (ROWS * QUADS + T::THREADS - 1) / T::THREADS,
        EXACT = ROWS * QUADS % T::THREADS == 0, STEP = T::THREADS / QUADS,
        SIDE = QUADS < (V == 4 ? 4 : 8) ? QUADS : V == 4 ? 4 : 8 /* lanes side by side along k: more would meet in the
                                                                  * same banks when they store */
    };
    static_assert(T::THREADS % QUADS == 0 && QUADS % SIDE == 0, "a thread stays at its k");
    __device__ static __forceinline__ int row(int i) { return (int)threadIdx.x / SIDE % STEP + i * STEP; }
    __device__ static __forceinline__ int k()
    {
        return ((int)threadIdx.x % SIDE + (int)threadIdx.x / (SIDE * STEP) * SIDE) * V;
    }
    template <class Source, class Run, class H>
    __device__ static __forceinline__ void load(const Source &s, const Run &at, H (&held)[COUNT])
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) held[i] = s.get(i, at);
    }
    __device__ static __forceinline__ void store(float *shared, const Pack<V> (&r)[COUNT])
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (EXACT || row(i) < ROWS) {
#pragma unroll
                for (int j = 0; j < V; j++) shared[(k() + j) * PITCH + row(i)] = r[i].v[j];
            }
    }
};

template <class T, int COLS, int PITCH, int V_> struct ByCol {
    enum {
        TIGHT = T::TIGHT, V = V_, QUADS = COLS / V, COUNT = (T::BK * QUADS + T::THREADS - 1) / T::THREADS,
        EXACT = T::BK * QUADS % T::THREADS == 0, STEP = T::THREADS / QUADS
    };
    static_assert(T::THREADS % QUADS == 0, "a thread stays at its column");
    __device__ static __forceinline__ int k(int i) { return (int)threadIdx.x / QUADS + i * STEP; }
    __device__ static __forceinline__ int col() { return (int)threadIdx.x % QUADS * V; }
    template <class Source, class Run, class H>
    __device__ static __forceinline__ void load(const Source &s, const Run &at, H (&held)[COUNT])
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (EXACT || k(i) < T::BK) held[i] = s.get(k(i), at);
    }
    __device__ static __forceinline__ void store(float *shared, const Pack<V> (&r)[COUNT])
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (EXACT || k(i) < T::BK) ::store(shared + k(i) * PITCH + col(), r[i]);
    }
    /* sum += the values of this thread's columns, for a bias gradient */
    __device__ static __forceinline__ void add_to(Pack<V> &sum, const Pack<V> (&r)[COUNT])
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (EXACT || k(i) < T::BK) {
#pragma unroll
                for (int j = 0; j < V; j++) sum.v[j] += r[i].v[j];
            }
    }
};

/* What the threads hold of A and B on the way into one half of shared memory. */
template <class T, class LA, class LB, class SA, class SB, class Run> struct Held {
    decltype(((const SA *)0)->get(0, *(const Run *)0)) a[LA::COUNT];
    decltype(((const SB *)0)->get(0, *(const Run *)0)) b[LB::COUNT];
    __device__ __forceinline__ void load(const SA &sa, const SB &sb, const Run &at)
    {
        LA::load(sa, at, a);
        LB::load(sb, at, b);
    }
    template <class Beside> __device__ __forceinline__ void store(float *half, Beside &beside) const
    {
        Pack<LA::V> ra[LA::COUNT];
        Pack<LB::V> rb[LB::COUNT];
#pragma unroll
        for (int i = 0; i < LA::COUNT; i++) ra[i] = settle(a[i]);
#pragma unroll
        for (int i = 0; i < LB::COUNT; i++) rb[i] = settle(b[i]);
        LA::store(half, ra);
        LB::store(half + T::BK * T::AP, rb);
        beside.template take<LA>(ra);
    }
};

/* ---- sources of plain matrices of S: float, or real */

/* Rows of a matrix (rows, end) with a pitch, for ByRow L. A row past the last is the last again: what is made of it is
 * never stored. */
template <class L, int ACT_ID, class S = float> struct Rows {
    const S *base;     /* the same for all threads, and each row's distance from it: one register */
    unsigned away[L::COUNT];
    ptrdiff_t to_y;
    float alpha;
    int k;
    __device__ __forceinline__ Rows(const S *m, const S *y, int first, int rows, unsigned pitch, float alpha_)
        : base(m + (size_t)first * pitch), to_y(y - m), alpha(alpha_), k(L::k())
    {
#pragma unroll
        for (int i = 0; i < L::COUNT; i++) away[i] = (unsigned)min(L::row(i), rows - 1 - first) * pitch + k;
    }
    template <class Run>
    __device__ __forceinline__ typename Fetched<L, ACT_ID>::type get(int i, const Run &at) const
    {
        const S *p = base + (away[i] + (unsigned)(at.b_offset + at.c));
        return Fetched<L, ACT_ID>::at(at.c + k < at.end, p, to_y, alpha);
    }
};

/* Columns of a matrix (end, cols) with a pitch, for ByCol L. A column past the last is the last again, as above. */
template <class L, int ACT_ID, class S = float> struct Cols {
    const S *p;
    unsigned pitch;
    ptrdiff_t to_y;
    float alpha;
    __device__ __forceinline__ Cols(const S *m, const S *y, int first, int cols, int pitch_, float alpha_)
        : p(m + min(first + L::col(), cols - L::V)), pitch((unsigned)pitch_), to_y(y - m), alpha(alpha_)
    {
    }
    template <class Run>
    __device__ __forceinline__ typename Fetched<L, ACT_ID>::type get(int k, const Run &at) const
    {
        const S *q = p + (size_t)(unsigned)(at.c + k) * pitch + at.b_offset;
        return Fetched<L, ACT_ID>::at(at.c + k < at.end, q, to_y, alpha);
    }
};

/* ---- the product */

/* Of a thread in its tile. Lanes t and t^1 read the same of A, t and t^2 the same of B: shared memory then answers a
 * load of 4 floats in 2 turns instead of 4. */
template <class T> struct Place {
    int slice, m, n; /* first row and column of its first group */
    __device__ __forceinline__ Place()
    {
        const int t = (int)threadIdx.x, in = t % T::SLICE, warp = in / T::LANES, lane = in % T::LANES;
        slice = t / T::SLICE;
        m = warp / T::WN * (T::LM * T::TM) + lane / 2 % T::LM * T::VM;
        n = warp % T::WN * (T::LN * T::TN) + (lane % 2 + lane / (2 * T::LM) * 2) * T::VN;
    }
    __device__ __forceinline__ int row(int i) const { return m + i / T::VM * (T::LM * T::VM) + i % T::VM; }
    __device__ __forceinline__ int col(int j) const { return n + j / T::VN * (T::LN * T::VN) + j % T::VN; }
};

template <class T>
__device__ __forceinline__ void multiply(const float *shared, const Place<T> &at, float (&acc)[T::TM][T::TN])
{
    const float *a = shared + at.slice * (T::BK / T::KS) * T::AP + at.m;
    const float *b = shared + T::BK * T::AP + at.slice * (T::BK / T::KS) * T::BP + at.n;
#pragma unroll
    for (int k = 0; k < T::BK / T::KS; k++) {
        Pack<T::VM> am[T::TM / T::VM];
        Pack<T::VN> bn[T::TN / T::VN];
#pragma unroll
        for (int i = 0; i < T::TM / T::VM; i++) am[i] = load<T::VM>(a + k * T::AP + i * (T::LM * T::VM));
#pragma unroll
        for (int j = 0; j < T::TN / T::VN; j++) bn[j] = load<T::VN>(b + k * T::BP + j * (T::LN * T::VN));
#pragma unroll
        for (int i = 0; i < T::TM; i++)
#pragma unroll
            for (int j = 0; j < T::TN; j++)
                acc[i][j] = fmaf(am[i / T::VM].v[i % T::VM], bn[j / T::VN].v[j % T::VN], acc[i][j]);
    }
}

/* Add up the slices; slice 0 then holds the sums. All threads take part; shared memory is free before and after. */
template <class T> __device__ __forceinline__ void join_slices(float *shared, int slice, float (&acc)[T::TM][T::TN])
{
#pragma unroll
    for (int half = T::KS / 2; half >= 1; half /= 2) {
        float *mine = shared + slice % half * T::SLICE + (int)threadIdx.x % T::SLICE;
        if (slice >= half && slice < 2 * half) {
#pragma unroll
            for (int e = 0; e < T::TM * T::TN; e++) mine[e * half * T::SLICE] = acc[e / T::TN][e % T::TN];
        }
        __syncthreads();
        if (slice < half) {
#pragma unroll
            for (int e = 0; e < T::TM * T::TN; e++) acc[e / T::TN][e % T::TN] += mine[e * half * T::SLICE];
        }
        __syncthreads();
    }
}

/* What else is made of A's elements as they pass: nothing, or (A by ByCol) the sums of this thread's columns. */
struct Nothing {
    template <class L> __device__ __forceinline__ void take(const Pack<L::V> (&)[L::COUNT]) {}
};
template <int V> struct ColumnSums {
    bool wanted;
    Pack<V> sum;
    template <class L> __device__ __forceinline__ void take(const Pack<L::V> (&a)[L::COUNT])
    {
        if (wanted) L::add_to(sum, a);
    }
};

/* acc = the tile's sums over `steps` steps from `at`, complete in slice 0. */
template <class T, class LA, class LB, class SA, class SB, class Run, class Beside>
__device__ __forceinline__ void product(float *shared, Run at, int steps, const SA &sa, const SB &sb,
                                        const Place<T> &place, float (&acc)[T::TM][T::TN], Beside &beside)
{
#pragma unroll
    for (int i = 0; i < T::TM; i++)
#pragma unroll
        for (int j = 0; j < T::TN; j++) acc[i][j] = 0.0f;
    /* Past the end nothing exists, so the last turns load nothing, and no branch stands between loads and product: at a
     * branch compilers move the loads behind the product, where every turn waits for memory. */
    if (T::KS == 1) {
        Held<T, LA, LB, SA, SB, Run> held;
        if (steps > 0) {
            held.load(sa, sb, at);
            held.store(shared, beside);
        }
        __syncthreads();
        for (int i = 0; i < steps; i++) {
            at.next();
            if (i + 1 == steps) at.c = at.end;
            held.load(sa, sb, at);
            multiply<T>(shared + (i & 1) * T::HALF, place, acc);
            held.store(shared + (~i & 1) * T::HALF, beside);
            __syncthreads();
        }
    } else { /* blocks with slices wait for memory more than they multiply: two steps are under way */
        Held<T, LA, LB, SA, SB, Run> held[2];
        if (steps > 0) {
            held[0].load(sa, sb, at);
            at.next();
            if (steps < 2) at.c = at.end;
            held[1].load(sa, sb, at);
            held[0].store(shared, beside);
        }
        __syncthreads();
        for (int pair = 0; pair < steps; pair += 2) {
#pragma unroll
            for (int d = 0; d < 2; d++) {
                const int i = pair + d;
                if (d > 0 && i >= steps) break;
                at.next();
                if (i + 2 >= steps) at.c = at.end;
                held[d].load(sa, sb, at);
                multiply<T>(shared + (i & 1) * T::HALF, place, acc);
                held[1 - d].store(shared + (~i & 1) * T::HALF, beside);
                __syncthreads();
            }
        }
    }
    if (T::KS > 1) join_slices<T>(shared, place.slice, acc);
}

/* Column sums of A (a ByCol L): out[col] = older[col] + sum over the threads that share the column, in their order.
 * All threads take part; shared memory is free before. */
template <class T, class L>
__device__ __forceinline__ void store_column_sums(float *shared, const Pack<L::V> &sum, int first, int cols, float *out,
                                                  const float *older)
{
    enum { COLS = L::QUADS * L::V };
    float *mine = shared + (int)threadIdx.x / L::QUADS * COLS + L::col();
#pragma unroll
    for (int j = 0; j < L::V; j++) mine[j] = sum.v[j];
    __syncthreads();
    for (int c = (int)threadIdx.x; c < COLS; c += T::THREADS)
        if (first + c < cols) {
            float s = 0.0f;
            for (int g = 0; g < T::THREADS / L::QUADS; g++) s += shared[g * COLS + c];
            out[first + c] = older ? older[first + c] + s : s;
        }
}

/* ---- what becomes of the sums */

/* Where row m of the result starts. BY_ROW: that is dear to compute, so a thread stores row by row. */
struct Matrix { /* rows of `cols` elements one after another */
    enum { BY_ROW = 0 };
    int cols;
    __device__ __forceinline__ size_t operator()(int m) const { return (size_t)m * (unsigned)cols; }
};

template <class S> struct Given { typedef S type; }; /* an argument that does not decide what S is: it may be nullptr */

/* out[where(m) + n] = act(acc + bias[n]) + older[where(m) + n], each part where it is asked for; `older` may be `out`.
 * S: float, or real. */
template <class T, int ACT_ID, class Where, class S>
__device__ __forceinline__ void store_tile(const Place<T> &at, const float (&acc)[T::TM][T::TN], int m0, int n0,
                                           int rows, int cols, const Where &where, const float *bias,
                                           const typename Given<S>::type *older, S *out, float alpha)
{
    if (at.slice > 0) return;
    /* groups are all in or all out, and aligned: a split's part of scratch may start anywhere */
    const bool aligned = (((size_t)out | (size_t)older) & (sizeof(S) * T::VN - 1)) == 0;
    const bool whole = T::VN == 1 || (cols % T::VN == 0 && aligned);
    enum { GROUPS = T::TN / T::VN };
#pragma unroll
    for (int e = 0; e < T::TM * GROUPS; e++) {
        const int i = Where::BY_ROW ? e / GROUPS : e % T::TM, j = (Where::BY_ROW ? e % GROUPS : e / T::TM) * T::VN;
        const int m = m0 + at.row(i), n = n0 + at.col(j);
        if (m >= rows || n >= cols) continue;
        const size_t place = where(m) + n;
        Pack<T::VN> r;
#pragma unroll
        for (int v = 0; v < T::VN; v++) {
            const float b = bias && n + v < cols ? bias[n + v] : 0.0f;
            r.v[v] = act_apply(ACT_ID, acc[i][j + v] + b, alpha);
        }
        if (whole) {
            if (older) {
                const Pack<T::VN> o = load<T::VN>(older + place);
#pragma unroll
                for (int v = 0; v < T::VN; v++) r.v[v] += o.v[v];
            }
            store(out + place, r);
        } else {
#pragma unroll
            for (int v = 0; v < T::VN; v++)
                if (n + v < cols) put(out + place + v, older ? get(older + place + v) + r.v[v] : r.v[v]);
        }
    }
}

/* ---- a split sum, added up by the block of its tile that comes last */

/* acc: this block's part z of `splits`. part: splits * PART floats of this tile. In the last block acc becomes the sum
 * of all parts (in slice 0), and true comes back: it goes on to store_tile. The others are done. */
template <class T>
__device__ __forceinline__ bool join_parts(float *part, int *counter, int z, int splits, int slice,
                                           float (&acc)[T::TM][T::TN])
{
    enum { QUADS = T::TM * T::TN / 4 };
    static_assert(T::TM * T::TN % 4 == 0, "parts are stored four at a time");
    const size_t mine = (size_t)threadIdx.x * 4; /* neighbouring threads, neighbouring places */
    if (slice == 0) {
#pragma unroll
        for (int q = 0; q < QUADS; q++) {
            Pack<4> v;
#pragma unroll
            for (int j = 0; j < 4; j++) v.v[j] = acc[(4 * q + j) / T::TN][(4 * q + j) % T::TN];
            store(part + (size_t)z * T::PART + q * (4 * T::SLICE) + mine, v);
        }
    }
    if (!last_block(counter, splits)) return false;
    if (slice > 0) return true;
#pragma unroll
    for (int e = 0; e < T::TM * T::TN; e++) acc[e / T::TN][e % T::TN] = 0.0f;
#pragma unroll (QUADS > 4 ? 1 : QUADS > 2 ? 2 : 4)
    for (int s = 0; s < splits; s++) {
#pragma unroll
        for (int q = 0; q < QUADS; q++) {
            const Pack<4> v = load<4>(part + (size_t)s * T::PART + q * (4 * T::SLICE) + mine);
#pragma unroll
            for (int j = 0; j < 4; j++) acc[(4 * q + j) / T::TN][(4 * q + j) % T::TN] += v.v[j];
        }
    }
    return true;
}

/* The column sums of a split sum (bias gradients): store_part_columns before join_parts, join_columns after it. */
template <class T, class L>
__device__ __forceinline__ void store_part_columns(float *shared, const Pack<L::V> &sum, float *part, int z)
{
    store_column_sums<T, L>(shared, sum, 0, T::BM, part + (size_t)z * T::PART + T::BM * T::BN, nullptr);
}
template <class T>
__device__ __forceinline__ void join_columns(const float *part, int splits, int first, int cols, float *out,
                                             const float *older)
{
    for (int c = (int)threadIdx.x; c < T::BM; c += T::THREADS)
        if (first + c < cols) {
            float s = 0.0f;
#pragma unroll 4
            for (int z = 0; z < splits; z++) s += part[(size_t)z * T::PART + T::BM * T::BN + c];
            out[first + c] = older ? older[first + c] + s : s;
        }
}

/* ---- a split sum, added up by a second launch */

/* The second pass of a split sum: part[z][count + count2], z = 0..splits-1, added in the order of z within each of
 * LANES_Z lanes, then over the lanes.
 *   i < count:  out[i] = act(sum + bias[i % cols]) + older[i]      else:  out2[i - count] = sum + older2[i - count]
 * S: of out and older, float or real.
 * Launch   grid ceil((count + count2) / (256 / LANES_Z)), block 256 */
template <int LANES_Z, int ACT_ID, class S>
__device__ __forceinline__ void add_parts(const float *part, const float *bias, const typename Given<S>::type *older,
                                          const float *older2, S *out, float *out2, int count, int count2, int cols,
                                          int splits, float alpha)
{
    enum { WIDE = 256 / LANES_Z };
    __shared__ float sums[LANES_Z][WIDE];
    const int lane = (int)threadIdx.x % WIDE, z0 = (int)threadIdx.x / WIDE;
    const size_t i = (size_t)blockIdx.x * WIDE + lane, all = (size_t)count + count2;
    float s = 0.0f;
    if (i < all) {
#pragma unroll 4
        for (int z = z0; z < splits; z += LANES_Z) s += part[z * all + i];
    }
    sums[z0][lane] = s;
    __syncthreads();
    if (z0 > 0 || i >= all) return;
#pragma unroll
    for (int z = 1; z < LANES_Z; z++) s += sums[z][lane];
    if (i < (size_t)count) {
        if (bias) s += bias[i % cols];
        s = act_apply(ACT_ID, s, alpha);
        put(out + i, older ? get(older + i) + s : s);
    } else {
        const size_t k = i - count;
        out2[k] = older2 ? older2[k] + s : s;
    }
}
