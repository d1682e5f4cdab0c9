// Runs the model once a second on numbers of the sketch's own, and prints what it says: a model of floats, or of int8.
#include <LiteNet.h>

extern "C" {
#include "model_in.h"
}

static ln_model model;
static float x[MODEL_OF(_INPUT_ELEMENTS)], y[MODEL_OF(_OUTPUT_ELEMENTS)];

void setup() {
  Serial.begin(115200);
  const int status = ln_open(&model, THE_MODEL.model, THE_MODEL.model_bytes);
  if (status != LN_OK) Serial.println(status);  // ln_status_text has the words, in 4 KB that a small chip lacks
}

void loop() {
  for (uint16_t i = 0; i < sizeof x / sizeof x[0]; i++) x[i] = (float)i;
  ln_quantize_input(&model, x, model_input);
  if (ln_run(&model, model_arena, sizeof model_arena, model_input, model_output) == LN_OK) {
    ln_dequantize_output(&model, model_output, y);
    for (uint16_t i = 0; i < sizeof y / sizeof y[0]; i++) Serial.println(y[i], 6);
  }
  delay(1000);
}
