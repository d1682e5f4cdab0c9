// Runs the model once a second on numbers of the sketch's own, and prints what it says.
#include <LiteNet.h>

extern "C" {
#include "model_in.h"
}

static ln_model model;

void setup() {
  Serial.begin(115200);
  if (ln_open(&model, THE_MODEL.model, THE_MODEL.model_bytes) != LN_OK) Serial.println(ln_status_text(model.status));
}

void loop() {
  float *x = (float *)model_input, *y = (float *)model_output;
  for (uint16_t i = 0; i < sizeof model_input / sizeof(float); i++) x[i] = (float)i;
  if (ln_run(&model, model_arena, sizeof model_arena, x, y) == LN_OK)
    for (uint16_t i = 0; i < sizeof model_output / sizeof(float); i++) Serial.println(y[i], 6);
  delay(1000);
}
