/* For a board that takes no models later: the built-in one is all it has. */
#include "device.h"

const uint32_t board_slot_bytes = 0;

const uint8_t *board_slot(int slot)
{
    (void)slot;
    return NULL;
}

int board_slot_erase(int slot)
{
    (void)slot;
    return 1;
}

int board_slot_write(int slot, uint32_t at, const uint8_t *data, uint16_t n)
{
    (void)slot, (void)at, (void)data, (void)n;
    return 1;
}
