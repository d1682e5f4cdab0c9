/* ATmega328P without the Arduino core: run the model on x[i] = i, print each output's 32 bits in hex, and sleep.
 * This chip reads no constants from flash through a pointer, so the model is in RAM. 115200 baud at 16 MHz. */
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>

#include "model_in.h"

static ln_model model;

static void put(uint8_t byte)
{
    while (!(UCSR0A & 1 << UDRE0)) {
    }
    UDR0 = byte;
}

static void put_word(uint32_t value)
{
    for (int8_t shift = 28; shift >= 0; shift -= 4) put((uint8_t)"0123456789ABCDEF"[value >> shift & 15]);
    put('\n');
}

int main(void)
{
    float *x = (float *)(void *)model_input;
    UBRR0 = 8;
    UCSR0B = 1 << TXEN0;
    for (uint8_t i = 0; i < sizeof model_input / sizeof(float); i++) x[i] = (float)i;

    ln_status s = ln_open(&model, THE_MODEL.model, THE_MODEL.model_bytes);
    if (s == LN_OK) s = ln_run(&model, model_arena, sizeof model_arena, x, (float *)(void *)model_output);
    put_word((uint32_t)s);
    for (uint8_t i = 0; i < sizeof model_output / sizeof(float); i++) put_word(((uint32_t *)(void *)model_output)[i]);
    put('.');
    put('\n');
    cli();
    sleep_enable();
    sleep_cpu();
    for (;;) {
    }
}
