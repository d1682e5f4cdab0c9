/* Lends a device the memory that one model needs: the one of LN_OPS_HEADER, which edge-export wrote.
 *
 *     cc -DLN_OPS_HEADER='"mnist_cnn.h"' ...
 *     #include "model_in.h"                // defines THE_MODEL
 *
 * MODEL_ROOM, where defined, is bytes of arena, input and output each, so that larger models can be loaded later. */
#ifndef LN_MODEL_IN_H
#define LN_MODEL_IN_H

#include "device.h"
#include LN_OPS_HEADER
#ifndef MODEL_NAME
#error "LN_OPS_HEADER is no header of this LiteNet's edge-export: make it again"
#endif

#define MODEL_JOIN_(a, b) a##b
#define MODEL_JOIN(a, b) MODEL_JOIN_(a, b)
#define MODEL_OF(what) MODEL_JOIN(MODEL_CAPS, what)

#ifdef MODEL_ROOM
#define MODEL_AT_LEAST(n) ((n) > MODEL_ROOM ? (n) : MODEL_ROOM)
#else
#define MODEL_AT_LEAST(n) (n)
#endif
#define MODEL_ARENA MODEL_AT_LEAST(MODEL_OF(_ARENA_BYTES))

static uint8_t model_arena[MODEL_ARENA ? MODEL_ARENA : 16] LN_ALIGNED_16;
static uint8_t model_input[MODEL_AT_LEAST(MODEL_OF(_INPUT_BYTES))] LN_ALIGNED_16;
static uint8_t model_output[MODEL_AT_LEAST(MODEL_OF(_OUTPUT_BYTES))] LN_ALIGNED_16;
static const ln_device_memory THE_MODEL = {
    MODEL_JOIN(MODEL_NAME, _bin), MODEL_OF(_BYTES), model_arena,  MODEL_ARENA,
    model_input,                  model_output,     sizeof model_input, sizeof model_output,
};

#endif
