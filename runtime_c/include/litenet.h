/* LiteNet runtime: run a .bin model on anything with a C99 compiler.
 *
 *     #include "litenet.h"
 *
 *     ln_model m;
 *     if (ln_open(&m, bin, len) != LN_OK) {            // bin: the whole file, in memory or flash
 *         char why[512];
 *         ln_explain(&m, why, sizeof why);
 *         puts(why);                                   // one sentence: where, found, expected, what to do
 *         return 1;
 *     }
 *     void *arena = malloc(ln_arena_bytes(&m));        // or a static array of that size
 *     float x[28 * 28], y[10];                         // ln_info gives the sizes
 *     ln_preprocess(&m, pixels, 640, 480, LN_BGR, x);  // any picture to the model's input
 *     ln_run(&m, arena, ln_arena_bytes(&m), x, y);
 *
 * A model of int8 reads and writes int8_t in place of floats: ln_input_bytes, ln_output_bytes and ln_get_tensor tell, and
 * ln_quantize_input and ln_dequantize_output translate. ln_preprocess gives what the model reads.
 *
 * This runs everywhere. On a processor with vector units ln_fast_prepare (litenet_fast.h), called once after ln_open,
 * makes ln_run several times faster.
 *
 * The core allocates nothing, keeps no state of its own, prints nothing, and includes only stddef.h and stdint.h.
 * What a .bin holds, byte by byte, is described in FORMAT.md. For chips there are three switches:
 *     -DLN_SMALL                    code and stack for size: 12 KB less flash; the results are the same bits
 *     -DLN_TERSE                    a refusal is a status and nothing more; there is no ln_explain
 *     -DLN_OPS_HEADER='"model.h"'   only what that model needs is built; edge-export writes the header
 * -DLN_MOST_OPS=4 and -DLN_MOST_ARENA=1024, say, set what a device is made for: ln_open refuses a model with more
 * operators, or that needs a larger arena.
 */
#ifndef LITENET_H
#define LITENET_H

#include <stddef.h>
#include <stdint.h>

#define LN_VERSION "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif
#if defined(LN_BUILDS_SHARED) && defined(__GNUC__)
#pragma GCC visibility push(default) /* these names are what a shared library shows */
#endif

/* The Python binding is built from the text between the two lines marked cffi. */
/* cffi begin */

/* Why a call refused. Every cause has its own value; ln_status_text says it in words. */
typedef enum ln_status {
    LN_OK = 0,
    /* the file is something else */
    LN_EMPTY_FILE, LN_NOT_LITENET, LN_IS_LFS_POINTER, LN_IS_HTML, LN_IS_ONNX, LN_IS_TFLITE, LN_IS_ZIP, LN_IS_GZIP,
    LN_IS_IMAGE, LN_IS_NUMPY, LN_IS_JSON,
    /* the file is damaged or from a newer LiteNet */
    LN_TRUNCATED, LN_EXTRA_BYTES, LN_BAD_HEADER_CRC, LN_BAD_BODY_CRC, LN_NEWER_MAJOR, LN_UNKNOWN_FEATURE,
    LN_BAD_HEADER, LN_BAD_SECTION, LN_BAD_PREPROCESS,
    /* a tensor or operator record does not hold */
    LN_BAD_DTYPE, LN_BAD_RANK, LN_BAD_DIM, LN_TENSOR_TOO_LARGE, LN_BAD_FLAGS, LN_BAD_SCALE, LN_OUTSIDE_ARENA,
    LN_MISALIGNED, LN_BAD_LIFETIME, LN_OVERLAP, LN_UNKNOWN_OP, LN_BAD_ACTIVATION, LN_BAD_ALGORITHM,
    LN_BAD_ATTRIBUTE, LN_BAD_QUANT, LN_BAD_TENSOR_INDEX, LN_BAD_ORDER, LN_BAD_SHAPE, LN_BAD_WEIGHTS, LN_BAD_SCRATCH,
    LN_BAD_GOLDEN,
    /* the call is wrong */
    LN_NULL_POINTER, LN_BIN_MISALIGNED, LN_ARENA_TOO_SMALL, LN_ARENA_MISALIGNED, LN_BAD_IMAGE_SIZE,
    LN_BAD_CHANNELS, LN_NO_PREPROCESS,
    /* the self-test, and a run that was ended */
    LN_NO_GOLDEN, LN_SELFTEST_FAILED, LN_NOT_FINITE, LN_STOPPED,
    /* desktop only: reading a file */
    LN_FILE_NOT_FOUND, LN_FILE_UNREADABLE, LN_FILE_TOO_LARGE, LN_FILE_CHANGED,
    /* a build with limits */
    LN_BEYOND_LIMITS,
    /* ln_check_input */
    LN_INPUT_NOT_FINITE
} ln_status;

enum { LN_F32 = 0, LN_F16 = 1, LN_I8 = 2, LN_U8 = 3, LN_I32 = 4 }; /* element types */

/* What the pixels of a picture mean, in memory order. */
enum { LN_GRAY = 1, LN_GRAY_ALPHA = 2, LN_RGB = 3, LN_RGBA = 4, LN_BGR = 5, LN_BGRA = 6 };

/* Preprocessing, as stored in the header. */
enum { LN_NEAREST = 0, LN_BILINEAR = 1, LN_AREA = 2 };            /* resize rule */
enum { LN_STRETCH = 0, LN_CROP = 1, LN_LETTERBOX = 2 };           /* how the picture fits the input's frame */
enum { LN_COLOR_NONE = 0, LN_COLOR_GRAY = 1, LN_COLOR_RGB = 2, LN_COLOR_BGR = 3 }; /* NONE: input is no picture */
enum { LN_INVERT_NEVER = 0, LN_INVERT_ALWAYS = 1, LN_INVERT_AUTO = 2 }; /* AUTO: when the border is bright */

typedef struct ln_preprocessing {
    uint8_t resize, fit, color, invert, pad; /* pad: grey value of the letterbox bars */
    float mean[3], std[3];                   /* x = (pixel - mean[c]) / std[c], pixel 0 to 255 */
} ln_preprocessing;

/* An opened model: plain data that points into the file. Copying it is fine. Read it through the functions below. */
struct ln_fast;
typedef struct ln_model {
    const uint8_t *bin;
    uint32_t len;                /* of the file; 0: not open */
    uint32_t weights_bytes, program_at, program_bytes, metadata_at, metadata_bytes, golden_at, golden_bytes;
    uint32_t op_count, tensor_count, arena_bytes, features;
    uint16_t major, minor;
    /* what ln_explain tells: filled by the call that failed */
    ln_status status;
    int32_t record;              /* index of the tensor or op record at fault; -1: none */
    uint32_t at;                 /* offset of the byte at fault, from the start of the file */
    uint64_t found, expected;    /* meaning depends on status */
    /* what ln_fast_prepare (litenet_fast.h) has set */
    const struct ln_fast *fast;  /* NULL: portable kernels */
    uint32_t fast_bytes;         /* of arena, besides arena_bytes */
    const uint8_t *choices;      /* what ln_fast_choose was given */
} ln_model;

/* One tensor of the program. dims[0..rank) are without the batch: (H,W,C) or (I). */
typedef struct ln_tensor {
    uint8_t dtype, rank, is_input, is_output;
    uint32_t dims[4], elements, bytes;
    uint32_t arena_at;           /* meaningless for input and output, which live at the caller's */
    uint16_t first, last;        /* op indices that write it first and read it last */
    float scale;                 /* an int8 value q stands for scale (q - zero_point) */
    int32_t zero_point;
} ln_tensor;

/* One operator of the program, as the file has it. */
typedef struct ln_op {
    uint16_t id;                 /* LN_OP_* in ln_ops.h */
    uint8_t activation, algorithm, n_inputs, weight_dtype;
    uint16_t inputs[4], output;  /* tensor indices */
    uint32_t weights_at, weights_bytes;
    uint32_t scratch_at, scratch_bytes;
    const uint8_t *attrs;        /* 32 bytes */
} ln_op;

/* Point m at the model in bin[0..len). Nothing is copied: bin must outlive m and not change. It starts at a multiple
 * of 4, as weights are used where they lie; a multiple of 64 is fastest.
 * Every count, offset and size of the file is checked here, so that ln_run checks none.
 * On failure m holds only what ln_explain needs; ln_run and ln_selftest then refuse it with the same status. */
ln_status ln_open(ln_model *m, const void *bin, size_t len);

/* Bytes of arena ln_run needs; the same for every run of one model. The arena starts at a multiple of 16. */
size_t ln_arena_bytes(const ln_model *m);

/* Number of values of the input, and of all outputs together; and the bytes they take. A value is a float, or in a
 * quantised model an int8_t: ln_get_tensor says which, tensor 0 being the input. */
size_t ln_input_elements(const ln_model *m);
size_t ln_output_elements(const ln_model *m);
size_t ln_input_bytes(const ln_model *m);
size_t ln_output_bytes(const ln_model *m);

/* Run one input. Reads in, writes arena and out, nothing else: threads may share m, each with its own arena.
 * in, out and arena must not overlap; where they hold floats they start where floats may, and out, unless it is a
 * single output of int8, at a multiple of 4. Several outputs stand one after another in out, in tensor order, each from
 * the next multiple of 4 bytes on. */
ln_status ln_run(const ln_model *m, void *arena, size_t arena_bytes, const void *in, void *out);

/* LN_INPUT_NOT_FINITE where a float of the input is NaN or infinite. ln_run computes with such values as the operators
 * define it, and an activation can hide them: -infinity becomes 0, and the answer looks like any other. */
ln_status ln_check_input(const ln_model *m, const void *in);

/* As ln_run, and calls after(user, op_index, op, output, data) after each operator; data, of the type that `output` says,
 * is valid until `after` returns. A non-zero answer ends the run with LN_STOPPED. */
typedef int (*ln_after_op)(void *user, uint32_t op_index, const ln_op *op, const ln_tensor *output,
                           const void *data);
ln_status ln_run_each(const ln_model *m, void *arena, size_t arena_bytes, const void *in, void *out,
                      ln_after_op after, void *user);

/* For a caller that has floats, or wants them, whatever the model is made of: ln_input_elements floats to what ln_run
 * reads, and what it wrote to ln_output_elements floats. Floats are copied, int8 is scale (q - zero point), rounded to the
 * nearest and held within -128 to 127. The first gives LN_INPUT_NOT_FINITE where a value is NaN or infinite, which int8
 * cannot say. (ln_floats.c, which a chip need not link) */
ln_status ln_quantize_input(const ln_model *m, const float *values, void *in);
ln_status ln_dequantize_output(const ln_model *m, const void *out, float *values);

/* The records of the program, decoded. index must be below m->op_count or m->tensor_count. */
void ln_get_op(const ln_model *m, uint32_t index, ln_op *op);
void ln_get_tensor(const ln_model *m, uint32_t index, ln_tensor *tensor);

/* The name of an operator or activation number, as in a blueprint; "?" if there is none. */
const char *ln_op_name(uint32_t id);
const char *ln_activation_name(uint32_t id);

/* Multiply-accumulates of one operator for one input; 0 for operators without any. */
uint64_t ln_op_macs(const ln_model *m, uint32_t index);

/* Preprocessing the model was trained with. color LN_COLOR_NONE: the input is not a picture. For an input of int8 the
 * file has whole numbers in place of mean and std, which here follow from them. */
void ln_get_preprocessing(const ln_model *m, ln_preprocessing *p);

/* A picture of any size, `height` rows of `width` pixels without padding in the given layout (LN_BGR, ...), to the
 * model's input. x has ln_input_bytes bytes. Exact rules: FORMAT.md, "Preprocessing". */
ln_status ln_preprocess(const ln_model *m, const uint8_t *pixels, uint32_t height, uint32_t width, int layout,
                        void *x);

/* Its two halves, which need no model. The first gives the frame as bytes (H,W,C), C = 1 for LN_COLOR_GRAY and 3
 * otherwise, and works in whole numbers only: the same bytes everywhere. The second is x = (pixel - mean) / std. */
ln_status ln_preprocess_bytes(const ln_preprocessing *p, const uint8_t *pixels, uint32_t height, uint32_t width,
                              int layout, uint8_t *frame, uint32_t frame_height, uint32_t frame_width);
void ln_normalize(const ln_preprocessing *p, const uint8_t *frame, uint32_t elements, float *x);

/* The second for a model, whose input may also be int8: then x = (pixel * P + Q) >> 16 with the file's whole numbers, and
 * x may be where the frame is. m is open and takes pictures. */
void ln_frame_to_input(const ln_model *m, const uint8_t *frame, void *x);

/* Run the golden inputs stored in the file and compare every operator with what the exporter saw. On
 * LN_SELFTEST_FAILED or LN_NOT_FINITE, m->record is the first operator that differs and ln_explain says how; m stays
 * open. x has ln_input_bytes, out ln_output_bytes: scratch space of the caller's, as for ln_run. */
ln_status ln_selftest(ln_model *m, void *arena, size_t arena_bytes, void *x, void *out);

/* A sentence of at most cap-1 bytes about the failure m holds: where, found, expected, what to do. Returns the
 * length of the whole sentence. */
size_t ln_explain(const ln_model *m, char *text, size_t cap);

/* One short English phrase for a status. Never NULL. */
const char *ln_status_text(ln_status status);

/* CRC-32 (IEEE 802.3, as in zip and PNG) of data, continuing from crc; start with 0. */
uint32_t ln_crc32(uint32_t crc, const void *data, size_t len);

/* cffi end */

#if defined(LN_BUILDS_SHARED) && defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
