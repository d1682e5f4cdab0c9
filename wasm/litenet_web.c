/* The runtime as a WebAssembly module. One instance of the module is one model: its memory is its own, so a model can
 * be thrown away whole, and none can touch another. litenet.js is what calls these functions.
 *
 * Memory, from the bottom: stack and constants | the file | plan and transformed weights | arena | input | output |
 * and, when they are first asked for, outputs of all operators (trace) | the pixels of a picture. Nothing is freed:
 * place() starts anew. Addresses are offsets into the memory; each starts at a multiple of 64. */
#include "litenet.h"
#include "litenet_fast.h"

#define EXPORT __attribute__((visibility("default"), used))

enum { PAGE = 65536, ALIGN = 64, TEXT = 1024 };

extern unsigned char __heap_base; /* the linker's: first byte behind stack and constants */

static struct {
    ln_model model;
    uint8_t *file, *plan, *arena;
    float *x, *y, *trace; /* what callers see: always floats */
    void *in, *out;       /* what ln_run sees: the same places, or int8 */
    uint8_t *pixels;
    uint32_t pixel_bytes; /* that `pixels` has room for */
    uint8_t *free;        /* first byte that is not taken */
    uint8_t *traced;      /* where the next operator's output goes */
#ifndef LN_CORE
    char text[TEXT];
#endif
} web;

/* The compiler may call these for structures and loops. */
void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    unsigned char *t = to;
    const unsigned char *f = from;

    for (size_t i = 0; i < n; i++) t[i] = f[i];
    return to;
}

void *memset(void *to, int value, size_t n)
{
    unsigned char *t = to;

    for (size_t i = 0; i < n; i++) t[i] = (unsigned char)value;
    return to;
}

/* `bytes` at a multiple of ALIGN; NULL if there is no such memory. */
static void *take(uint64_t bytes)
{
    const uint64_t at = ((uint64_t)(uintptr_t)web.free + ALIGN - 1) / ALIGN * ALIGN, end = at + bytes;
    const uint64_t have = (uint64_t)__builtin_wasm_memory_size(0) * PAGE;

    if (end > UINT32_MAX) return NULL;
    if (end > have && __builtin_wasm_memory_grow(0, (size_t)((end - have + PAGE - 1) / PAGE)) == SIZE_MAX) return NULL;
    web.free = (uint8_t *)(uintptr_t)end;
    return (uint8_t *)(uintptr_t)at;
}

static ln_tensor tensor_of(uint32_t index)
{
    ln_tensor tensor;

    ln_get_tensor(&web.model, index, &tensor);
    return tensor;
}

static uint64_t floats(size_t count)
{
    return (uint64_t)count * sizeof(float);
}

/* Room for a file of `bytes`, which the caller fills; 0 if there is no such memory. The model before is gone. */
EXPORT uint8_t *place(uint32_t bytes)
{
    memset(&web, 0, sizeof web);
    web.free = &__heap_base;
    web.file = take(bytes ? bytes : 1);
    return web.file;
}

/* Open the file of `bytes` that was placed, and prepare it. An ln_status, or -1 if there is not enough memory. */
EXPORT int open_model(uint32_t bytes)
{
    ln_model *const m = &web.model;
    const ln_status status = ln_open(m, web.file, bytes);

    if (status != LN_OK) return (int)status;
    const size_t plan = ln_fast_bytes(m, LN_KERNELS_BEST);
    if (plan) {
        web.plan = take(plan);
        if (!web.plan) return -1;
        const ln_status prepared = ln_fast_prepare(m, LN_KERNELS_BEST, NULL, web.plan, plan);
        if (prepared != LN_OK) return (int)prepared;
    }
    web.arena = take(ln_arena_bytes(m));
    web.in = web.x = take(floats(ln_input_elements(m)));
    web.out = web.y = take(floats(ln_output_elements(m)));
#ifndef LN_CORE
    if (ln_input_bytes(m) != floats(ln_input_elements(m))) web.in = take(ln_input_bytes(m));
    if (ln_output_bytes(m) != floats(ln_output_elements(m))) web.out = take(ln_output_bytes(m));
#endif
    return web.arena && web.x && web.y && web.in && web.out ? LN_OK : -1;
}

/* The values of a tensor as floats; of int8, what they stand for. */
static void to_floats(const ln_tensor *tensor, const void *from, float *to)
{
#ifndef LN_CORE
    if (tensor->dtype == LN_I8) {
        const int8_t *q = from;
        for (uint32_t i = 0; i < tensor->elements; i++) to[i] = tensor->scale * (float)(q[i] - tensor->zero_point);
        return;
    }
#endif
    memcpy(to, from, tensor->bytes);
}

static ln_status run_each(ln_after_op after)
{
    ln_model *const m = &web.model;

    const ln_status given = web.in == web.x ? ln_check_input(m, web.x) : ln_quantize_input(m, web.x, web.in);
    if (given != LN_OK) return given;
    const ln_status status = ln_run_each(m, web.arena, ln_arena_bytes(m), web.in, web.out, after, NULL);
    if (web.out != web.y && status == LN_OK) ln_dequantize_output(m, web.out, web.y);
    return status;
}

#ifndef LN_CORE
/* Why the last call failed: the length of a sentence in UTF-8 that lies at text(). A core (litenet_core.c) has none. */
EXPORT uint32_t explain(void)
{
    const size_t length = ln_explain(&web.model, web.text, sizeof web.text);

    return (uint32_t)(length < sizeof web.text ? length : sizeof web.text - 1);
}

EXPORT const char *text(void) { return web.text; }

/* The short phrase of a status, which ends with a zero byte. */
EXPORT const char *status_text(int status) { return ln_status_text((ln_status)status); }
#endif

/* Run the values at input(); the answer lies at output(). */
EXPORT int run(void)
{
    return (int)run_each(NULL);
}

EXPORT float *input(void) { return web.x; }
EXPORT float *output(void) { return web.y; }
EXPORT uint32_t input_elements(void) { return (uint32_t)ln_input_elements(&web.model); }
EXPORT uint32_t output_elements(void) { return (uint32_t)ln_output_elements(&web.model); }

/* Room for a picture of `bytes`; 0 if there is no such memory. Another picture may be put at the same place. */
EXPORT uint8_t *picture(uint32_t bytes)
{
    if (bytes > web.pixel_bytes) {
        if (web.pixels && web.pixels + web.pixel_bytes == web.free) web.free = web.pixels; /* the last block grows */
        web.pixels = take(bytes);
        web.pixel_bytes = web.pixels ? bytes : 0;
    }
    return web.pixels;
}

/* The picture at picture(), `layout` LN_RGBA and so on, to the values at input(). */
EXPORT int preprocess(uint32_t height, uint32_t width, int layout)
{
    const ln_status status = ln_preprocess(&web.model, web.pixels, height, width, layout, web.in);

    if (web.in != web.x && status == LN_OK) {
        const ln_tensor tensor = tensor_of(0);
        to_floats(&tensor, web.in, web.x);
    }
    return (int)status;
}

static int keep(void *user, uint32_t op_index, const ln_op *op, const ln_tensor *tensor, const void *data)
{
    (void)user, (void)op_index, (void)op;
    to_floats(tensor, data, (float *)(void *)web.traced);
    web.traced += floats(tensor->elements);
    return 0;
}

/* As run(), and keep the output of every operator, one after another in their order, at traced(). */
EXPORT int trace(void)
{
    ln_model *const m = &web.model;

    if (!web.trace) {
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < m->op_count; i++) {
            ln_op op;
            ln_tensor tensor;
            ln_get_op(m, i, &op);
            ln_get_tensor(m, op.output, &tensor);
            bytes += floats(tensor.elements);
        }
        web.trace = take(bytes);
        if (!web.trace) return -1;
    }
    web.traced = (uint8_t *)web.trace;
    return (int)run_each(keep);
}

EXPORT float *traced(void) { return web.trace; }

/* Run the inputs stored in the file; the values at input() and output() are overwritten. */
EXPORT int selftest(void)
{
    return (int)ln_selftest(&web.model, web.arena, ln_arena_bytes(&web.model), web.in, web.out);
}

/* What the file says */

EXPORT const uint8_t *metadata(void) { return web.file + web.model.metadata_at; }
EXPORT uint32_t metadata_bytes(void) { return web.model.metadata_bytes; }
EXPORT uint32_t weights_bytes(void) { return web.model.weights_bytes; }
EXPORT uint32_t arena_bytes(void) { return (uint32_t)ln_arena_bytes(&web.model); }
EXPORT uint32_t format_major(void) { return web.model.major; }
EXPORT uint32_t format_minor(void) { return web.model.minor; }
EXPORT const char *kernels(void) { return ln_fast_name(LN_KERNELS_BEST); }

/* LN_COLOR_*: LN_COLOR_NONE if the input is no picture. */
EXPORT int picture_color(void)
{
    ln_preprocessing p;

    ln_get_preprocessing(&web.model, &p);
    return p.color;
}

/* Tensors: the first is the input. */

EXPORT uint32_t tensors(void) { return web.model.tensor_count; }

EXPORT uint32_t tensor_rank(uint32_t index) { return tensor_of(index).rank; }
EXPORT uint32_t tensor_dim(uint32_t index, uint32_t axis) { return tensor_of(index).dims[axis]; }
EXPORT uint32_t tensor_is_output(uint32_t index) { return tensor_of(index).is_output; }

/* Operators, in the order they run. Names end with a zero byte. */

EXPORT uint32_t operators(void) { return web.model.op_count; }

static ln_op op_of(uint32_t index)
{
    ln_op op;

    ln_get_op(&web.model, index, &op);
    return op;
}

EXPORT const char *operator_name(uint32_t index) { return ln_op_name(op_of(index).id); }
EXPORT const char *operator_activation(uint32_t index) { return ln_activation_name(op_of(index).activation); }
EXPORT const char *operator_algorithm(uint32_t index) { return ln_fast_algorithm(&web.model, index); }
EXPORT uint32_t operator_output(uint32_t index) { return op_of(index).output; }
EXPORT uint32_t operator_inputs(uint32_t index) { return op_of(index).n_inputs; }
EXPORT uint32_t operator_input(uint32_t index, uint32_t which) { return op_of(index).inputs[which]; }
EXPORT uint32_t operator_weights_bytes(uint32_t index) { return op_of(index).weights_bytes; }
EXPORT double operator_macs(uint32_t index) { return (double)ln_op_macs(&web.model, index); }
EXPORT uint32_t operator_weight_dtype(uint32_t index) { return op_of(index).weight_dtype; }
EXPORT const uint8_t *operator_weights(uint32_t index) { return web.file + op_of(index).weights_at; }
EXPORT const uint8_t *operator_attributes(uint32_t index) { return op_of(index).attrs; }
