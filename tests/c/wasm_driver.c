/* The runtime as a WebAssembly module without a C library, for tests/wasm_driver.mjs: one model at a time, in memory
 * that the caller lays out from heap() on. With LN_TEST_FAST the kernels for vectors are in it. */
#include "ln_internal.h"
#ifdef LN_TEST_FAST
#include "fast.h"
#endif

#define EXPORT(name) __attribute__((export_name(#name)))

extern uint8_t __heap_base;
static ln_model model;

EXPORT(heap) uint8_t *heap(void)
{
    return &__heap_base;
}

EXPORT(open_model) uint32_t open_model(const uint8_t *bin, uint32_t bytes)
{
    return ln_open(&model, bin, bytes);
}

EXPORT(record) int32_t record(void)
{
    return model.record;
}

EXPORT(operators) uint32_t operators(void)
{
    return model.op_count;
}

EXPORT(macs) double macs(uint32_t i)
{
    return (double)ln_op_macs(&model, i);
}

EXPORT(inputs) uint32_t inputs(void) /* bytes */
{
    return (uint32_t)ln_input_bytes(&model);
}

EXPORT(outputs) uint32_t outputs(void)
{
    return (uint32_t)ln_output_bytes(&model);
}

EXPORT(arena_bytes) uint32_t arena_bytes(void)
{
    return (uint32_t)ln_arena_bytes(&model);
}

EXPORT(run) uint32_t run(void *arena, const void *in, void *out)
{
    return ln_run(&model, arena, ln_arena_bytes(&model), in, out);
}

static int ignore(void *user, uint32_t i, const ln_op *op, const ln_tensor *t, const void *y)
{
    (void)user, (void)i, (void)op, (void)t, (void)y;
    return 0;
}

EXPORT(run_each) uint32_t run_each(void *arena, const void *in, void *out) /* nothing is joined */
{
    return ln_run_each(&model, arena, ln_arena_bytes(&model), in, out, ignore, NULL);
}

EXPORT(selftest) uint32_t selftest(void *arena, void *in, void *out) /* LN_OK also where there is nothing to test */
{
    const ln_status s = ln_selftest(&model, arena, ln_arena_bytes(&model), in, out);
    return s == LN_NO_GOLDEN ? LN_OK : s;
}

#ifdef LN_TEST_FAST
EXPORT(plan_bytes) uint32_t plan_bytes(int kernels, int choice)
{
    return (uint32_t)ln_fast_bytes_as(&model, kernels, choice);
}

EXPORT(prepare) uint32_t prepare(int kernels, int choice, void *memory, uint32_t bytes)
{
    return ln_fast_prepare_as(&model, kernels, choice, NULL, memory, bytes);
}
#endif
