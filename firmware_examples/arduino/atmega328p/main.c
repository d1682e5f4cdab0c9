/* ATmega328P without the Arduino core: run the model on x[i] = i, of its own type, print the status and the bytes of the
 * output, what ln_run took in units of 4 us, and how much of the stack was used, all in hex, and sleep. This chip reads no
 * constants from flash through a pointer, so the model is in RAM. 115200 baud at 16 MHz. */
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

static void put_hex(uint8_t byte)
{
    put((uint8_t)"0123456789ABCDEF"[byte >> 4]);
    put((uint8_t)"0123456789ABCDEF"[byte & 15]);
}

static uint16_t took; /* 64 cycles each */

extern uint8_t __heap_start; /* what lies behind the variables */
enum { PAINT = 0x5C };

static void paint(void)
{
    for (uint8_t *p = &__heap_start; p < (uint8_t *)SP; p++) *p = PAINT;
}

static uint16_t stack_used(void)
{
    const uint8_t *p = &__heap_start;
    while (p < (uint8_t *)RAMEND && *p == PAINT) p++;
    return (uint16_t)((uint16_t)RAMEND + 1 - (uint16_t)p);
}

static ln_status run(void)
{
    ln_tensor t;
    const ln_status opened = ln_open(&model, THE_MODEL.model, THE_MODEL.model_bytes);
    if (opened != LN_OK) return opened;
    ln_get_tensor(&model, 0, &t);
    for (uint16_t i = 0; i < t.elements; i++) {
        if (t.dtype == LN_F32) ((float *)(void *)model_input)[i] = (float)i;
        else model_input[i] = (uint8_t)i;
    }
    TCNT1 = 0;
    TCCR1B = 1 << CS11 | 1 << CS10;
    const ln_status s = ln_run(&model, model_arena, sizeof model_arena, model_input, model_output);
    took = TCNT1;
    return s;
}

int main(void)
{
    paint();
    UBRR0 = 8;
    UCSR0B = 1 << TXEN0;
    put_hex((uint8_t)run());
    put(' ');
    for (uint16_t i = 0; i < sizeof model_output; i++) put_hex(model_output[i]);
    put(' ');
    put_hex((uint8_t)(took >> 8));
    put_hex((uint8_t)took);
    const uint16_t used = stack_used();
    put(' ');
    put_hex((uint8_t)(used >> 8));
    put_hex((uint8_t)used);
    put('.');
    put('\n');
    cli();
    sleep_enable();
    sleep_cpu();
    for (;;) {
    }
}
