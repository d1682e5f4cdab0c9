/* cushim: run CUDA C kernels on the CPU, unchanged, one block after another.
 *
 * The threads of a block are fibers of one OS thread. __syncthreads and the warp shuffles switch to the next fiber, so
 * a thread runs undisturbed from one barrier to the next. Two orders (cu::backwards) make a missing barrier show: a
 * value that is read too early in one order is read too late in the other. Shared memory is filled with 0xFF (NaN)
 * when a block starts, and a barrier that some threads skip stops the program.
 *
 * A kernel file is preprocessed after this header; tests/cushim.py adds one entry for each kernel it finds (cu::enter).
 * Dynamic shared memory is declared as DYNAMIC_SHARED(float, name); everything else is plain CUDA C.
 * Half precision is converted in software (HALF_TO_FLOAT, FLOAT_TO_HALF), where a card has an instruction.
 * Not here: cooperative groups, textures, inline PTX, atomics on float.
 */
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
/* A wide load or store at an address that is no multiple of its size stops a card, and so the test. */
#define ALIGNED_TO(p, bytes)                                                                                  \
    do {                                                                                                      \
        if (reinterpret_cast<uintptr_t>(p) % (bytes)) {                                                       \
            fprintf(stderr, "%s:%d: misaligned access of %d bytes\n", __FILE__, __LINE__, (int)(bytes));      \
            abort();                                                                                          \
        }                                                                                                     \
    } while (0)
/* IEEE half precision, to nearest even, as cvt.f32.f16 and cvt.rn.f16.f32 do it. */
static inline float cushim_half_to_float(unsigned short h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31) {
        const uint32_t bits = sign | 0x7f800000u | m << 13;
        float f;
        memcpy(&f, &bits, 4);
        return f;
    }
    const float size = e ? ldexpf((float)(1024 + m), (int)e - 25) : ldexpf((float)m, -24);
    return sign ? -size : size;
}
static inline unsigned short cushim_float_to_half(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, 4);
    const unsigned short sign = (unsigned short)(bits >> 16 & 0x8000);
    if (f != f) return (unsigned short)(sign | 0x7fff);
    const float a = fabsf(f);
    if (a >= 65520.0f) return (unsigned short)(sign | 0x7c00);
    int e;
    frexpf(a, &e);                         /* a = q * 2^e, q in [0.5, 1) */
    const int unit = e < -13 ? -24 : e - 11; /* exponent of the last place */
    const unsigned n = (unsigned)rintf(ldexpf(a, -unit)); /* up to 2048: the carry moves into the exponent by itself */
    return (unsigned short)(sign | (a == 0.0f ? 0u : e < -13 ? n : (unsigned)(e + 13) * 1024u + n));
}
#define HALF_TO_FLOAT cushim_half_to_float
#define FLOAT_TO_HALF cushim_float_to_half
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static __attribute__((section("cushim_shared"), aligned(16)))
#define DYNAMIC_SHARED(T, name) T *const name = (T *)cu::dynamic_shared

struct uint3 { unsigned x, y, z; };
typedef uint3 dim3;
#define CUSHIM_VECTOR(T, name)                                                    \
    struct __align__(2 * sizeof(T)) name##2 { T x, y; };                          \
    struct name##3 { T x, y, z; };                                                \
    struct __align__(16) name##4 { T x, y, z, w; };                               \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }             \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }     \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUSHIM_VECTOR(float, float)
CUSHIM_VECTOR(int, int)
struct __align__(8) uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
struct __align__(4) uchar4 { unsigned char x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

extern "C" char __start_cushim_shared[] __attribute__((weak)), __stop_cushim_shared[] __attribute__((weak));

namespace cu {

enum State { READY, AT_WARP, AT_BLOCK, DONE };
enum { WARP = 32, MAX_THREADS = 1024, STACK = 64 * 1024, MAX_DYNAMIC = 99 * 1024 };

#if defined(__x86_64__) && !defined(CUSHIM_UCONTEXT)
/* Save the callee-saved registers and the stack pointer, continue on another stack. */
typedef void *Context;
extern "C" void cushim_switch(Context *save, Context to);
__asm__(".text\n.local cushim_switch\n.type cushim_switch,@function\n"
        "cushim_switch:\n push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        " mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
        " pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret\n");
static void go(Context &from, Context &to) { cushim_switch(&from, to); }
static void start(Context &c, char *stack, void (*entry)()) {
    void **sp = (void **)(stack + STACK - 64);
    *--sp = nullptr; /* entry never returns */
    *--sp = (void *)entry;
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    c = sp;
}
#else
} // namespace cu
#include <ucontext.h>
namespace cu {
typedef ucontext_t Context;
static void go(Context &from, Context &to) { swapcontext(&from, &to); }
static void start(Context &c, char *stack, void (*entry)()) {
    getcontext(&c);
    c.uc_stack.ss_sp = stack;
    c.uc_stack.ss_size = STACK;
    c.uc_link = nullptr;
    makecontext(&c, entry, 0);
}
#endif

struct Fiber {
    Context context;
    char *stack;
    State state;
    uint3 thread;
    unsigned index;
    uint64_t given; /* what this lane offers to a shuffle */
    int flag;
};

static Fiber fibers[MAX_THREADS];
static Fiber *self;
static Context home;
static uint3 block, block_dim, grid_dim;
static void (*body)(void *);
static void *body_argument;
static int backwards;
alignas(256) static char dynamic_shared[MAX_DYNAMIC];

[[noreturn]] static void fail(const char *what) {
    fprintf(stderr, "cushim: block (%u,%u,%u): %s\n", block.x, block.y, block.z, what);
    fflush(stderr);
    abort();
}

[[gnu::noinline]] static void wait(State state) {
    self->state = state;
    go(self->context, home);
}

static void fiber_main() {
    body(body_argument);
    wait(DONE);
    abort();
}

/* Run the lanes of one warp until all of them are at a block barrier or done. */
static void run_warp(unsigned first, unsigned end) {
    for (bool again = true; again;) {
        again = false;
        for (unsigned n = first; n < end; n++) {
            Fiber &f = fibers[backwards ? end - 1 - (n - first) : n];
            if (f.state != READY && f.state != AT_WARP) continue;
            self = &f;
            f.state = READY;
            go(home, f.context);
        }
        for (unsigned n = first; n < end; n++) again |= fibers[n].state == AT_WARP;
    }
}

static void run_block(unsigned threads, unsigned shared) {
    memset(dynamic_shared, 0xFF, shared);
    const size_t fixed = (size_t)(__stop_cushim_shared - __start_cushim_shared);
    if (fixed) memset(__start_cushim_shared, 0xFF, fixed);
    for (unsigned i = 0; i < threads; i++) {
        Fiber &f = fibers[i];
        if (!f.stack) f.stack = (char *)aligned_alloc(64, STACK);
        f.index = i;
        f.thread = {i % block_dim.x, i / block_dim.x % block_dim.y, i / (block_dim.x * block_dim.y)};
        f.state = READY;
        start(f.context, f.stack, fiber_main);
    }
    const unsigned warps = (threads + WARP - 1) / WARP;
    for (;;) {
        for (unsigned w = 0; w < warps; w++) {
            const unsigned first = (backwards ? warps - 1 - w : w) * WARP;
            run_warp(first, first + WARP < threads ? first + WARP : threads);
        }
        unsigned done = 0;
        for (unsigned i = 0; i < threads; i++) done += fibers[i].state == DONE;
        if (done == threads) return;
        if (done) fail("some threads wait in __syncthreads, others have returned");
        for (unsigned i = 0; i < threads; i++) fibers[i].state = READY;
    }
}

static void launch(const unsigned *dims, unsigned shared, void (*f)(void *), void *argument) {
    grid_dim = {dims[0], dims[1], dims[2]};
    block_dim = {dims[3], dims[4], dims[5]};
    body = f;
    body_argument = argument;
    const unsigned threads = block_dim.x * block_dim.y * block_dim.z;
    if (threads < 1 || threads > MAX_THREADS) fail("a block has 1 to 1024 threads");
    if (shared > MAX_DYNAMIC) fail("more shared memory than a card has");
    for (block.z = 0; block.z < grid_dim.z; block.z++)
        for (block.y = 0; block.y < grid_dim.y; block.y++)
            for (block.x = 0; block.x < grid_dim.x; block.x++) run_block(threads, shared);
}

/* Call a kernel with arguments given as CUDA's launch takes them: one pointer to each. */
template <int... I> struct Indices {};
template <int N, int... I> struct Count : Count<N - 1, N - 1, I...> {};
template <int... I> struct Count<0, I...> { typedef Indices<I...> type; };
template <class... A> struct Packed {
    void (*kernel)(A...);
    void **arguments;
    template <int... I> void call(Indices<I...>) { kernel(*(A *)arguments[I]...); }
    static void run(void *p) { ((Packed *)p)->call(typename Count<sizeof...(A)>::type()); }
};
template <class... A> int enter(void (*kernel)(A...), const unsigned *dims, unsigned shared, int order,
                                   void **arguments, int count) {
    if (count != (int)sizeof...(A)) return (int)sizeof...(A);
    Packed<A...> packed = {kernel, arguments};
    backwards = order;
    launch(dims, shared, &Packed<A...>::run, &packed);
    return -1;
}

template <class T> static T exchange(T value, unsigned lane, bool inside) {
    self->given = 0;
    memcpy(&self->given, &value, sizeof value);
    wait(AT_WARP);
    T got = value;
    const unsigned from = (self->index & ~31u) | lane;
    if (inside && from < block_dim.x * block_dim.y * block_dim.z) memcpy(&got, &fibers[from].given, sizeof got);
    wait(AT_WARP);
    return got;
}

} // namespace cu

#define threadIdx (cu::self->thread)
#define blockIdx (cu::block)
#define blockDim (cu::block_dim)
#define gridDim (cu::grid_dim)
#define warpSize 32

static inline void __syncthreads() { cu::wait(cu::AT_BLOCK); }
static inline void __syncwarp(unsigned = ~0u) { cu::wait(cu::AT_WARP); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline int cushim_count(int flag) {
    cu::self->flag = flag != 0;
    __syncthreads();
    int n = 0;
    for (unsigned i = 0; i < blockDim.x * blockDim.y * blockDim.z; i++) n += cu::fibers[i].flag;
    __syncthreads();
    return n;
}
static inline int __syncthreads_count(int flag) { return cushim_count(flag); }
static inline int __syncthreads_or(int flag) { return cushim_count(flag) > 0; }
static inline int __syncthreads_and(int flag) { return cushim_count(!flag) == 0; }

template <class T> static T __shfl_sync(unsigned, T v, int lane, int width = 32) {
    const unsigned me = cu::self->index & 31;
    return cu::exchange(v, (me & ~(unsigned)(width - 1)) | ((unsigned)lane & (unsigned)(width - 1)), true);
}
template <class T> static T __shfl_xor_sync(unsigned, T v, int mask, int width = 32) {
    const unsigned me = cu::self->index & 31, to = me ^ (unsigned)mask;
    return cu::exchange(v, to & 31, to / (unsigned)width == me / (unsigned)width);
}
template <class T> static T __shfl_down_sync(unsigned, T v, unsigned by, int width = 32) {
    const unsigned me = cu::self->index & 31, to = me + by;
    return cu::exchange(v, to & 31, to / (unsigned)width == me / (unsigned)width);
}
template <class T> static T __shfl_up_sync(unsigned, T v, unsigned by, int width = 32) {
    const unsigned me = cu::self->index & 31;
    return cu::exchange(v, (me - by) & 31, me % (unsigned)width >= by);
}
static inline unsigned __ballot_sync(unsigned, int flag) {
    unsigned bits = 0;
    for (int lane = 0; lane < 32; lane++) bits |= (unsigned)(__shfl_sync(~0u, flag != 0, lane) != 0) << lane;
    return bits;
}
static inline int __any_sync(unsigned m, int flag) { return __ballot_sync(m, flag) != 0; }
static inline int __all_sync(unsigned m, int flag) { return __ballot_sync(m, !flag) == 0; }

template <class T> static inline T __ldg(const T *p) { return *p; }
static inline int atomicAdd(int *p, int v) { const int old = *p; *p += v; return old; }
static inline unsigned atomicAdd(unsigned *p, unsigned v) { const unsigned old = *p; *p += v; return old; }
static inline int atomicMax(int *p, int v) { const int old = *p; if (v > old) *p = v; return old; }
static inline int atomicMin(int *p, int v) { const int old = *p; if (v < old) *p = v; return old; }

static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
template <class To, class From> static inline To cushim_bits(From v) { To r; memcpy(&r, &v, sizeof r); return r; }
#define __float_as_int cushim_bits<int, float>
#define __int_as_float cushim_bits<float, int>
#define __float_as_uint cushim_bits<unsigned, float>
#define __uint_as_float cushim_bits<float, unsigned>
#define __expf expf
#define __logf logf
#define __fdividef(a, b) ((a) / (b))
#define __fmaf_rn fmaf
#define __fadd_rn(a, b) ((a) + (b))
#define __fmul_rn(a, b) ((a) * (b))
#define __frcp_rn(a) (1.0f / (a))
#define __float2int_rn(v) ((int)lrintf(v))
