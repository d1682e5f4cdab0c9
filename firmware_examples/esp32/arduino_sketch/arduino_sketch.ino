// ESP32 with the Arduino core: the library of ../../arduino, made for your model, answers edge-serial.
#include <LiteNet.h>

void setup() {
  Serial.begin(115200);
  litenet_begin(Serial);
}

void loop() {
  litenet_poll();
}
