/* What the files of the core share. Not for callers: litenet.h is the interface. */
#ifndef LN_INTERNAL_H
#define LN_INTERNAL_H

#include "litenet.h"
#include "ln_ops.h"

/* Numbers of the file, assembled byte by byte: no alignment is needed. */
static inline uint16_t ln_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t ln_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline float ln_float_of(uint32_t bits)
{
    union {
        uint32_t bits;
        float value;
    } v;
    v.bits = bits;
    return v.value;
}

static inline float ln_f32(const uint8_t *p)
{
    return ln_float_of(ln_u32(p));
}

static inline int ln_is_finite(const uint8_t *p) /* the float32 at p */
{
    return (ln_u32(p) & 0x7F800000u) != 0x7F800000u;
}

/* The file, as FORMAT.md has it. */
enum {
    LN_HEADER_BYTES = 128,
    LN_TENSOR_BYTES = 32, /* a tensor record */
    LN_OP_BYTES = 64,     /* an operator record, the last 32 of which are its attributes */
    LN_ATTRS_AT = 32,
    LN_NO_TENSOR = 0xFFFF,
    LN_MAX_OPS = 4096,
    LN_MAX_ELEMENTS = 0x3FFFFFFF, /* of one tensor: its bytes fit 32 bits */
    LN_FLAG_INPUT = 1,
    LN_FLAG_OUTPUT = 2,
    LN_FEATURE_F16 = 1 /* feature bit: some weights are float16 */
};

static inline uint32_t ln_tensor_record(const ln_model *m, uint32_t index) /* offset in the file */
{
    return m->program_at + index * LN_TENSOR_BYTES;
}

static inline uint32_t ln_op_record(const ln_model *m, uint32_t index)
{
    return m->program_at + m->tensor_count * LN_TENSOR_BYTES + index * LN_OP_BYTES;
}

/* Note in m why it is refused; returns status. */
ln_status ln_fail(ln_model *m, ln_status status, int32_t record, uint32_t at, uint64_t found, uint64_t expected);

/* What a file without our magic is: one of LN_IS_..., or LN_NOT_LITENET. */
ln_status ln_sniff(const uint8_t *b, size_t len);

/* ln_open, with a function of ln_crc32's meaning for the body of the file. */
typedef uint32_t ln_checksum(uint32_t crc, const void *data, size_t len);
ln_status ln_open_checked(ln_model *m, const void *bin, size_t len, ln_checksum *checksum);

/* Part of ln_open: every tensor and operator record. The sections have been found to lie inside the file. */
ln_status ln_check_records(ln_model *m);

/* What to do about a status, as a sentence; "" for LN_OK. */
const char *ln_remedy(ln_status status);

/* Geometry of the golden section: `inputs` times input, output and operator values after `fixed` bytes. */
typedef struct ln_golden {
    uint64_t fixed, each;   /* bytes before the first golden input; bytes of one */
    uint64_t x, x_bytes, y; /* input elements and their padded bytes; output elements */
    uint64_t inputs;
    int frames;             /* 1: inputs are uint8 frames; 0: float32 */
} ln_golden;

void ln_golden_shape(const ln_model *m, ln_golden *g); /* m->golden_bytes must be at least 16 */

/* Part of ln_open: the golden section. Records have been checked. */
ln_status ln_check_golden(ln_model *m);

#if defined(__GNUC__)
#define LN_COLD __attribute__((cold)) /* runs once, at open: small rather than fast */
#else
#define LN_COLD
#endif

/* One operator, ready to run. */
typedef struct ln_call {
    ln_op op;
    ln_tensor in[4], out;
    const float *x[4]; /* x, y and scratch are set by ln_run only; while the file is checked they are NULL */
    float *y;
    const uint8_t *w;  /* the weights block; NULL if there is none */
    float *scratch;
} ln_call;

/* Each operator is one file, op_<name>.c, with three functions:
 *   check  the shape rule: c->out against c->in and the attributes, which are in range; weights_bytes and
 *          scratch_bytes exactly what run uses. LN_OK, LN_BAD_SHAPE, LN_BAD_WEIGHTS or
 *          LN_BAD_SCRATCH, which is what any scratch memory is: no operator has any yet, and check_arena would have to look. Every dim is at least 1 and every c->in[k].elements, c->out.elements is true and below
 *          2^30, but products with attributes can pass 32 bits: use uint64_t.
 *   run    check has passed: tests nothing.
 *   macs   multiply-accumulates of one input. */
#define LN_OP(id, NAME, name, n_inputs, inplace_mask)    \
    LN_COLD ln_status ln_##name##_check(const ln_call *c); \
    void ln_##name##_run(const ln_call *c);              \
    LN_COLD uint64_t ln_##name##_macs(const ln_call *c);
#include "ln_ops.def"

/* A prepared model is run by what prepared it. Arguments are as those of ln_run_each and have been checked. */
struct ln_fast {
    ln_status (*run)(const ln_model *m, void *arena, const float *in, float *out, ln_after_op after, void *user);
};

/* Operator `index` with its tensors; x, y and scratch NULL. */
void ln_load_call(const ln_model *m, uint32_t index, ln_call *c);

#endif
