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
 * 16 bytes and has a multiple of 4 elements, else 1.
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
        HALF = BK * (AP + BP),
        SUMS = KS > 1 ? BM * BN * KS / 2 : 0,
        FLOATS = 2 * HALF > SUMS ? 2 * HALF : SUMS /* of shared memory */
    };
    static_assert(BM % TM == 0 && BN % TN == 0 && BK % KS == 0 && TM % VM == 0 && TN % VN == 0, "tile");
    static_assert(SLICE % LANES == 0 && (BN / TN) % LN == 0 && (BM / TM) % LM == 0, "lanes do not fill the tile");
};

/* n / d for n < 2^31 by a multiplication; calls_gemm.py computes mul and shift. */
struct Divisor { unsigned mul; int shift; };
__device__ __forceinline__ int divide(int n, Divisor d)
{
    return (int)((__umulhi((unsigned)n, d.mul) + (unsigned)n) >> d.shift);
}

/* The V values at p, or 0; a gradient dy is multiplied by act'(y), y standing `to_y` elements away. */
template <int V, int ACT_ID>
__device__ __forceinline__ Pack<V> fetch(bool exists, const float *p, ptrdiff_t to_y, float alpha)
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

/* Where a block stands in its sum. `c` counts within a run of `end` elements; a convolution has one run for each tap
 * of its kernel, which moves the two matrices by a_offset and b_offset and asks rows for their bit `bit`. */
template <int BK> struct Straight {
    enum { a_offset = 0, b_offset = 0 };
    int c, end;
    __device__ __forceinline__ void next() { c += BK; }
};

/* ---- loaders */

template <class T, int ROWS, int PITCH, int V_> struct ByRow {
    enum {
        V = V_, QUADS = T::BK / V, COUNT = (ROWS * QUADS + T::THREADS - 1) / T::THREADS,
        EXACT = ROWS * QUADS % T::THREADS == 0, STEP = T::THREADS / QUADS
    };
    static_assert(T::THREADS % QUADS == 0, "a thread stays at its k");
    Pack<V> r[COUNT];
    __device__ static __forceinline__ int row(int i) { return (int)threadIdx.x / QUADS + i * STEP; }
    __device__ static __forceinline__ int k() { return (int)threadIdx.x % QUADS * V; }
    template <class Source, class Run> __device__ __forceinline__ void load(const Source &s, const Run &at)
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) r[i] = s.get(i, at);
    }
    __device__ __forceinline__ void store(float *shared) const
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
        V = V_, QUADS = COLS / V, COUNT = (T::BK * QUADS + T::THREADS - 1) / T::THREADS,
        EXACT = T::BK * QUADS % T::THREADS == 0, STEP = T::THREADS / QUADS
    };
    static_assert(T::THREADS % QUADS == 0, "a thread stays at its column");
    Pack<V> r[COUNT];
    __device__ static __forceinline__ int k(int i) { return (int)threadIdx.x / QUADS + i * STEP; }
    __device__ static __forceinline__ int col() { return (int)threadIdx.x % QUADS * V; }
    template <class Source, class Run> __device__ __forceinline__ void load(const Source &s, const Run &at)
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (EXACT || k(i) < T::BK) r[i] = s.get(k(i), at);
    }
    __device__ __forceinline__ void store(float *shared) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (EXACT || k(i) < T::BK) ::store(shared + k(i) * PITCH + col(), r[i]);
    }
    /* sum += the values of this thread's columns, for a bias gradient */
    __device__ __forceinline__ void add_to(Pack<V> &sum) const
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (EXACT || k(i) < T::BK) {
#pragma unroll
                for (int j = 0; j < V; j++) sum.v[j] += r[i].v[j];
            }
    }
};

/* ---- sources of plain matrices */

/* Rows of a matrix (rows, end) with a pitch, for ByRow L. A row past the last is the last again: what is made of it is
 * never stored. */
template <class L, int ACT_ID> struct Rows {
    const float *base; /* the same for all threads, and each row's distance from it: one register */
    unsigned away[L::COUNT];
    ptrdiff_t to_y;
    float alpha;
    int k;
    __device__ __forceinline__ Rows(const float *m, const float *y, int first, int rows, unsigned pitch, float alpha_)
        : base(m + (size_t)first * pitch), to_y(y - m), alpha(alpha_), k(L::k())
    {
#pragma unroll
        for (int i = 0; i < L::COUNT; i++) away[i] = (unsigned)min(L::row(i), rows - 1 - first) * pitch + k;
    }
    template <class Run> __device__ __forceinline__ Pack<L::V> get(int i, const Run &at) const
    {
        return fetch<L::V, ACT_ID>(at.c + k < at.end, base + (away[i] + (unsigned)(at.b_offset + at.c)), to_y, alpha);
    }
};

/* Columns of a matrix (end, cols) with a pitch, for ByCol L. A column past the last is the last again, as above. */
template <class L, int ACT_ID> struct Cols {
    const float *p;
    unsigned pitch;
    ptrdiff_t to_y;
    float alpha;
    __device__ __forceinline__ Cols(const float *m, const float *y, int first, int cols, int pitch_, float alpha_)
        : p(m + min(first + L::col(), cols - L::V)), pitch((unsigned)pitch_), to_y(y - m), alpha(alpha_)
    {
    }
    template <class Run> __device__ __forceinline__ Pack<L::V> get(int k, const Run &at) const
    {
        const float *q = p + (size_t)(unsigned)(at.c + k) * pitch + at.b_offset;
        return fetch<L::V, ACT_ID>(at.c + k < at.end, q, to_y, alpha);
    }
};

/* ---- the product */

template <class T> struct Place { /* of a thread in its tile */
    int slice, m, n; /* first row and column of its first group */
    __device__ __forceinline__ Place()
    {
        const int t = (int)threadIdx.x, in = t % T::SLICE, warp = in / T::LANES, lane = in % T::LANES;
        slice = t / T::SLICE;
        m = warp / T::WN * (T::LM * T::TM) + lane / T::LN * T::VM;
        n = warp % T::WN * (T::LN * T::TN) + lane % T::LN * T::VN;
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
    template <class L> __device__ __forceinline__ void take(const L &) {}
};
template <int V> struct ColumnSums {
    bool wanted;
    Pack<V> sum;
    template <class L> __device__ __forceinline__ void take(const L &a)
    {
        if (wanted) a.add_to(sum);
    }
};

/* acc = the tile's sums over `steps` steps from `at`, complete in slice 0. */
template <class T, class LA, class LB, class SA, class SB, class Run, class Beside>
__device__ __forceinline__ void product(float *shared, Run at, int steps, const SA &sa, const SB &sb,
                                        const Place<T> &place, float (&acc)[T::TM][T::TN], Beside &beside)
{
    LA a;
    LB b;
#pragma unroll
    for (int i = 0; i < T::TM; i++)
#pragma unroll
        for (int j = 0; j < T::TN; j++) acc[i][j] = 0.0f;
    if (steps > 0) {
        a.load(sa, at);
        b.load(sb, at);
        a.store(shared);
        b.store(shared + T::BK * T::AP);
        beside.take(a);
    }
    __syncthreads();
    for (int i = 0; i < steps; i++) {
        const bool more = i + 1 < steps;
        if (more) {
            at.next();
            a.load(sa, at);
            b.load(sb, at);
        }
        multiply<T>(shared + (i & 1) * T::HALF, place, acc);
        if (more) {
            float *other = shared + (~i & 1) * T::HALF;
            a.store(other);
            b.store(other + T::BK * T::AP);
            beside.take(a);
        }
        __syncthreads();
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

/* out[where(m) + n] = act(acc + bias[n]) + older[where(m) + n], each part where it is asked for; `older` may be `out`. */
template <class T, int ACT_ID, class Where>
__device__ __forceinline__ void store_tile(const Place<T> &at, const float (&acc)[T::TM][T::TN], int m0, int n0,
                                           int rows, int cols, const Where &where, const float *bias,
                                           const float *older, float *out, float alpha)
{
    if (at.slice > 0) return;
    /* groups are all in or all out, and aligned: a split's part of scratch may start anywhere */
    const bool aligned = (((size_t)out | (size_t)older) & (sizeof(float) * T::VN - 1)) == 0;
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
                if (n + v < cols) out[place + v] = older ? older[place + v] + r.v[v] : r.v[v];
        }
    }
}

/* The second pass of a split sum: part[z][count + count2], z = 0..splits-1, added in the order of z within each of
 * LANES_Z lanes, then over the lanes.
 *   i < count:  out[i] = act(sum + bias[i % cols]) + older[i]      else:  out2[i - count] = sum + older2[i - count]
 * Launch   grid ceil((count + count2) / (256 / LANES_Z)), block 256 */
template <int LANES_Z, int ACT_ID>
__device__ __forceinline__ void add_parts(const float *part, const float *bias, const float *older, const float *older2,
                                          float *out, float *out2, int count, int count2, int cols, int splits,
                                          float alpha)
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
        out[i] = older ? older[i] + s : s;
    } else {
        const size_t k = i - count;
        out2[k] = older2 ? older2[k] + s : s;
    }
}
