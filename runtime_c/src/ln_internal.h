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

/* The number at p, a multiple of 4, as the numbers of records stand. */
static inline uint32_t ln_word_at(const uint8_t *p)
{
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    typedef uint32_t __attribute__((may_alias)) word;
    return *(const word *)(const void *)p;
#else
    return ln_u32(p);
#endif
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

static inline int ln_is_number(float value) /* of this machine, neither NaN nor infinite */
{
    union {
        float value;
        uint32_t bits;
    } v;

    v.value = value;
    return (v.bits & 0x7F800000u) != 0x7F800000u;
}

static inline int ln_is_normal(const uint8_t *p) /* above 0, finite and no denormal, which some processors take for 0 */
{
    return ln_u32(p) - 0x00800000u < 0x7F000000u;
}

/* The file, as FORMAT.md has it. */
enum {
    LN_HEADER_BYTES = 128,
    LN_TENSOR_BYTES = 32, /* a tensor record */
    LN_OP_BYTES = 64,     /* an operator record, the last 32 of which are its attributes */
    LN_ATTRS_AT = 32,
    LN_QUANT_AT = 20,     /* of these: where the numbers of an int8 operator begin */
    LN_NO_TENSOR = 0xFFFF,
    LN_MAX_OPS = 4096,
    LN_MAX_ELEMENTS = 0x3FFFFFFF, /* of one tensor: its bytes fit 32 bits */
    LN_FLAG_INPUT = 1,
    LN_FLAG_OUTPUT = 2,
    LN_FEATURE_F16 = 1, /* feature bit: some weights are float16 */
    LN_FEATURE_I8 = 2,  /* feature bit: some tensors are int8 */
#ifdef LN_WITH_F16
    LN_KNOWN_F16 = LN_FEATURE_F16,
#else
    LN_KNOWN_F16 = 0,
#endif
#ifdef LN_WITH_I8
    LN_KNOWN_FEATURES = LN_KNOWN_F16 | LN_FEATURE_I8,
#else
    LN_KNOWN_FEATURES = LN_KNOWN_F16,
#endif
    LN_KNOWN_MINOR = 3
};

/* Is a tensor of this type int8? A build for one type knows, and loses what follows from the other. */
static inline int ln_i8_type(uint32_t dtype)
{
#if defined(LN_WITH_I8) && defined(LN_WITH_F32)
    return dtype == LN_I8;
#elif defined(LN_WITH_I8)
    return (void)dtype, 1;
#else
    return (void)dtype, 0;
#endif
}

static inline uint32_t ln_tensor_record(const ln_model *m, uint32_t index) /* offset in the file */
{
    return m->program_at + index * LN_TENSOR_BYTES;
}

static inline uint32_t ln_op_record(const ln_model *m, uint32_t index)
{
    return m->program_at + m->tensor_count * LN_TENSOR_BYTES + index * LN_OP_BYTES;
}

/* Note in m why it is refused; returns status. */
#ifndef LN_TERSE
ln_status ln_fail(ln_model *m, ln_status status, int32_t record, uint32_t at, uint64_t found, uint64_t expected);
#else /* the status alone, which ln_open notes */
#define ln_fail(m, status, record, at, found, expected) ((void)sizeof((at) + (found) + (expected)), (status))
#endif

/* What a file without our magic is: one of LN_IS_..., or LN_NOT_LITENET. */
ln_status ln_sniff(const uint8_t *b, size_t len);

/* ln_open, with a function of ln_crc32's meaning for the body of the file. */
typedef uint32_t ln_checksum(uint32_t crc, const void *data, size_t len);
ln_status ln_open_checked(ln_model *m, const void *bin, size_t len, ln_checksum *checksum);

/* Part of ln_open: every tensor and operator record. The sections have been found to lie inside the file. */
ln_status ln_check_records(ln_model *m);

/* Parts of ln_open, or with LN_TERSE of ln_preprocess (ln_check_header.c). The header's shape of a tensor, whose type
 * and dims stand there; and the rules of preprocessing. */
ln_status ln_check_header_shape(ln_model *m, uint32_t tensor, uint32_t dtype_at, uint32_t dims_at);
ln_status ln_check_preprocessing(ln_model *m);

/* Parts of ln_check_records for int8 (ln_check_i8.c). A tensor's scale and zero point; the types of an operator's
 * tensors; and the numbers of its record, after its weights. A build without int8 has all tensors f32, since it does not
 * know the feature. */
ln_status ln_check_scale(ln_model *m, uint32_t tensor);
#ifdef LN_WITH_I8
ln_status ln_check_types(ln_model *m, uint32_t index, const ln_op *op, const ln_op_facts *facts);
ln_status ln_check_quant(ln_model *m, uint32_t index, const ln_op *op, const ln_op_facts *facts);
#else
#define ln_check_types(m, index, op, facts) LN_OK
#define ln_check_quant(m, index, op, facts) LN_OK
#endif

/* What to do about a status, as a sentence; "" for LN_OK. */
const char *ln_remedy(ln_status status);

/* The rules of preprocessing at b, a header; mean and std mean nothing where an int8 input has whole numbers there. */
static inline void ln_get_rules(const uint8_t *b, ln_preprocessing *p)
{
    p->resize = b[96];
    p->fit = b[97];
    p->color = b[98];
    p->invert = b[99];
    p->pad = b[124];
    for (uint32_t c = 0; c < 3; c++) {
        p->mean[c] = ln_f32(b + 100 + 4 * c);
        p->std[c] = ln_f32(b + 112 + 4 * c);
    }
}

/* Geometry of the golden section: `inputs` times input, output and operator values after `fixed` bytes. */
typedef struct ln_golden {
    uint64_t fixed, each;   /* bytes before the first golden input; bytes of one */
    uint64_t x, x_bytes, y_bytes; /* input elements and their padded bytes; bytes of the outputs, each padded */
    uint64_t inputs;
    int bytes;              /* 1: a byte an input value, of frames or of int8; 0: float32 */
    int frames;             /* 1: inputs are frames */
    int made;               /* 1: a seed stands where the values of an input would */
} ln_golden;

void ln_golden_shape(const ln_model *m, ln_golden *g); /* m->golden_bytes must be at least 16 */

/* How an operator's output is compared: byte for byte; within rounding; or loosely, as what is behind floats that were
 * rounded to int8. FORMAT.md, section 7. */
typedef enum ln_grade { LN_EXACT, LN_CLOSE, LN_LOOSE } ln_grade;
ln_grade ln_grade_of(const ln_model *m, uint32_t op_index);

/* Part of ln_open: the golden section. Records have been checked. */
ln_status ln_check_golden(ln_model *m);

#if defined(__GNUC__)
#define LN_COLD __attribute__((cold)) /* runs once, at open: small rather than fast */
#else
#define LN_COLD
#endif

/* With LN_SMALL a function apart: one that compilers would copy into its callers, or whose loop needs all registers. */
#if defined(LN_SMALL) && defined(__GNUC__)
#define LN_APART __attribute__((noinline))
#else
#define LN_APART
#endif

/* One operator, ready to run. */
typedef struct ln_call {
    ln_op op;
    ln_tensor in[LN_MOST_INPUTS], out;
    const float *x[LN_MOST_INPUTS]; /* places are set by ln_run only; while the file is checked they are NULL */
    float *y;
    const int8_t *qx[LN_MOST_INPUTS]; /* x and y where their tensors are int8; the others are NULL then */
    int8_t *qy;
    const uint8_t *w;  /* the weights block; NULL if there is none */
    float *scratch;
} ln_call;

/* Each operator is one file, op_<name>.c, with three functions, and where it also runs on int8 tensors a fourth,
 * ln_<name>_i8_run, in op_<name>_i8.c or beside them:
 *   check  the shape rule, of both forms: c->out against c->in and the attributes, which are in range; weights_bytes and
 *          scratch_bytes exactly what run uses. LN_OK, LN_BAD_SHAPE, LN_BAD_ALGORITHM, LN_BAD_WEIGHTS or LN_BAD_SCRATCH,
 *          which is what any scratch memory is: no operator has any. Every dim is at least 1 and every c->in[k].elements, c->out.elements is true and below
 *          2^30, but products with attributes can pass 32 bits: use uint64_t.
 *   run    check has passed: tests nothing.
 *   macs   multiply-accumulates of one input. */
#define LN_OP(id, NAME, name, n_inputs, inplace_mask)    \
    LN_COLD ln_status ln_##name##_check(const ln_call *c); \
    void ln_##name##_run(const ln_call *c);              \
    LN_COLD uint64_t ln_##name##_macs(const ln_call *c);
#include "ln_ops.def"

#define LN_OP_I8(id, NAME, name, takes) void ln_##name##_i8_run(const ln_call *c);
#include "ln_ops_i8.def"

static inline int ln_is_i8(const ln_call *c) /* does it run in the int8 form? */
{
    return ln_i8_type(c->out.dtype) && ln_i8_type(c->in[0].dtype);
}

/* Where tensor `index` is: places of the arena, of the caller's input and output given. For a walk. */
typedef struct ln_places {
    const uint8_t *in;
    uint8_t *arena, *out;
} ln_places;

void ln_set_places(const ln_model *m, ln_call *c, const ln_places *at);

/* The operator's function, by its form. Places have been set. */
void ln_run_op(const ln_call *c);

/* LN_OK of an open model, and two pointers that are not NULL. (ln_run.c) */
ln_status ln_check_usable(const ln_model *m, const void *from, const void *to);

/* Is none of them NaN or infinite? (ln_run.c) */
int ln_all_finite(const float *v, uint32_t n);

/* A prepared model is run by what prepared it. Arguments are as those of ln_run_each and have been checked. */
struct ln_fast {
    ln_status (*run)(const ln_model *m, void *arena, const void *in, void *out, ln_after_op after, void *user);
    /* x as int8 of scale 1 / inverse; 0 where one is NaN or infinite; or NULL */
    int (*enter)(const float *x, int8_t *y, size_t n, float inverse, int32_t z);
};

/* Operator `index` with its tensors; x, y and scratch NULL. */
void ln_load_call(const ln_model *m, uint32_t index, ln_call *c);

#endif
