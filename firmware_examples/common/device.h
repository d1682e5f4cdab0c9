/* The program of a board: it answers requests that arrive as frames, runs the model, and can take a new one.
 *
 *     int main(void)
 *     {
 *         board_start();                            // clocks, the serial port
 *         ln_device_start(&THE_MODEL);
 *         for (;;) ln_device_poll();
 *     }
 *
 * A board supplies three functions; a fourth and a fifth where it can. There is no heap, and no interrupt is needed. */
#ifndef LN_DEVICE_H
#define LN_DEVICE_H

#include "frame.h"
#include "litenet.h"

/* ---- what a board supplies */

int board_read(void);         /* the next byte of the serial line, or -1: none has come. Does not wait */
void board_write(uint8_t byte);
uint32_t board_ticks(void);   /* a clock that counts up and wraps at 2^32 */
extern const uint32_t board_tick_hertz;
extern const char board_name[];

/* Bytes of stack used at most since the start, and its size, where the board painted it; else 0, 0. */
void board_stack(uint32_t *used, uint32_t *size);

/* Two places for models that are loaded later, each of board_slot_bytes (0: this board has none). Erase makes a slot
 * 0xFF; write puts n bytes at `at` of it, where they were 0xFF. 0: done; anything else: it failed. */
extern const uint32_t board_slot_bytes;
const uint8_t *board_slot(int slot);
int board_slot_erase(int slot);
int board_slot_write(int slot, uint32_t at, const uint8_t *data, uint16_t n);

/* ---- the device */

typedef struct ln_device_memory { /* what the program lends: see model_in.c */
    const uint8_t *model;
    uint32_t model_bytes;
    uint8_t *arena;        /* at a multiple of 16 */
    uint32_t arena_bytes;
    uint8_t *input, *output; /* each at a multiple of 4 */
    uint32_t input_bytes, output_bytes;
} ln_device_memory;

/* Open the newest model: one that was loaded and kept, else the built-in one. */
void ln_device_start(const ln_device_memory *memory);

/* Take what bytes have come, and answer the frame that they complete, if they do. */
void ln_device_poll(void);

#endif
