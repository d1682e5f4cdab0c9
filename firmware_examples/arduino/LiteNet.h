/* LiteNet for Arduino sketches. THE_MODEL is the model that assemble.py was given. */
#ifndef LITENET_ARDUINO_H
#define LITENET_ARDUINO_H

#include "ln_arduino.h" /* written by assemble.py: which model, which switches */
#include "litenet.h"

#ifdef __cplusplus
#include <Arduino.h>

/* Answer edge-serial on this line. Call litenet_begin once, litenet_poll in loop(). */
void litenet_begin(Stream &line);
void litenet_poll();
#endif

#endif
