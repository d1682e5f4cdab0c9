/* Raspberry Pi Pico with the Pico SDK: USB serial, the microsecond clock, two slots at the end of its flash. */
#include <string.h>

#include "hardware/flash.h"
#include "hardware/sync.h"
#include "pico/stdlib.h"

#include "model_in.h"

const char board_name[] = "rp2040";
const uint32_t board_tick_hertz = 1000000;
enum { SLOT_BYTES = 512 << 10, SLOTS_AT = PICO_FLASH_SIZE_BYTES - 2 * SLOT_BYTES };
const uint32_t board_slot_bytes = SLOT_BYTES;

int board_read(void)
{
    const int byte = getchar_timeout_us(0);
    return byte < 0 ? -1 : byte;
}

void board_write(uint8_t byte)
{
    putchar_raw(byte);
}

uint32_t board_ticks(void)
{
    return time_us_32();
}

const uint8_t *board_slot(int slot)
{
    return (const uint8_t *)(XIP_BASE + SLOTS_AT + (uint32_t)slot * SLOT_BYTES);
}

int board_slot_erase(int slot)
{
    const uint32_t held = save_and_disable_interrupts(); /* code in flash cannot run meanwhile */
    flash_range_erase(SLOTS_AT + (uint32_t)slot * SLOT_BYTES, SLOT_BYTES);
    restore_interrupts(held);
    return 0;
}

int board_slot_write(int slot, uint32_t at, const uint8_t *data, uint16_t n)
{
    static uint8_t page[FLASH_PAGE_SIZE]; /* flash is written by the page; 0xFF leaves a byte as it is */
    while (n) {
        const uint32_t first = at % FLASH_PAGE_SIZE, room = FLASH_PAGE_SIZE - first, take = n < room ? n : room;
        memset(page, 0xFF, sizeof page);
        memcpy(page + first, data, take);
        const uint32_t held = save_and_disable_interrupts();
        flash_range_program(SLOTS_AT + (uint32_t)slot * SLOT_BYTES + at - first, page, FLASH_PAGE_SIZE);
        restore_interrupts(held);
        at += take;
        data += take;
        n = (uint16_t)(n - take);
    }
    return 0;
}

int main(void)
{
    stdio_init_all();
    stdio_set_translate_crlf(&stdio_usb, false); /* bytes are bytes */
    ln_device_start(&THE_MODEL);
    for (;;) ln_device_poll();
}
