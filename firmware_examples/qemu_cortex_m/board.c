/* Serial port, clock and model slots of the boards that qemu-system-arm emulates. */
#include "device.h"

#ifndef BOARD_NAME
#define BOARD_NAME "qemu"
#endif
const char board_name[] = BOARD_NAME;

static volatile uint32_t *reg(uint32_t address)
{
    return (volatile uint32_t *)address;
}

/* ---- serial port */

#ifdef BOARD_NRF51
enum { UART = 0x40002000, STARTRX = 0x000, STARTTX = 0x008, RXDRDY = 0x108, TXDRDY = 0x11C, ENABLE = 0x500, RXD = 0x518,
       TXD = 0x51C };

static void start_uart(void)
{
    *reg(UART + ENABLE) = 4;
    *reg(UART + STARTTX) = 1;
    *reg(UART + STARTRX) = 1;
}

int board_read(void)
{
    if (!*reg(UART + RXDRDY)) return -1;
    *reg(UART + RXDRDY) = 0;
    return (int)(*reg(UART + RXD) & 0xFF);
}

void board_write(uint8_t byte)
{
    *reg(UART + TXDRDY) = 0;
    *reg(UART + TXD) = byte;
    while (!*reg(UART + TXDRDY)) {
    }
}
#else /* the UART of Arm's CMSDK */
#ifndef BOARD_UART
#define BOARD_UART 0x40004000u
#endif
enum { DATA = 0, STATE = 4, CONTROL = 8, DIVIDER = 16, SEND_FULL = 1, RECEIVED = 2 };

static void start_uart(void)
{
    *reg(BOARD_UART + DIVIDER) = 217; /* 25 MHz / 115200 */
    *reg(BOARD_UART + CONTROL) = 3;
}

int board_read(void)
{
    return *reg(BOARD_UART + STATE) & RECEIVED ? (int)(*reg(BOARD_UART + DATA) & 0xFF) : -1;
}

void board_write(uint8_t byte)
{
    while (*reg(BOARD_UART + STATE) & SEND_FULL) {
    }
    *reg(BOARD_UART + DATA) = byte;
}
#endif

/* ---- clock: SysTick counts down from 2^24 - 1; a wrap is seen when it is asked at least once in a turn */

#ifndef BOARD_HERTZ
#define BOARD_HERTZ 25000000
#endif
const uint32_t board_tick_hertz = BOARD_HERTZ;
enum { SYST_CSR = 0xE010, SYST_RVR = 0xE014, SYST_CVR = 0xE018, TURN = 1 << 24, WRAPPED = 1 << 16 };
static uint32_t turns;

uint32_t board_ticks(void)
{
    if (*reg(0xE0000000u + SYST_CSR) & WRAPPED) turns += TURN;
    return turns + (TURN - 1 - *reg(0xE0000000u + SYST_CVR));
}

/* ---- slots for models: memory that can be written where qemu has any */

#ifndef BOARD_SLOTS
const uint32_t board_slot_bytes = 0;
#define BOARD_SLOTS 0
#else
const uint32_t board_slot_bytes = 512 << 10;
#endif

const uint8_t *board_slot(int slot)
{
    return (const uint8_t *)(BOARD_SLOTS + (uint32_t)slot * (512u << 10));
}

int board_slot_erase(int slot)
{
    uint32_t *to = (uint32_t *)(uintptr_t)board_slot(slot);
    for (uint32_t i = 0; i < board_slot_bytes / 4; i++) to[i] = 0xFFFFFFFFu;
    return 0;
}

int board_slot_write(int slot, uint32_t at, const uint8_t *data, uint16_t n)
{
    uint8_t *to = (uint8_t *)(uintptr_t)board_slot(slot) + at;
    for (uint16_t i = 0; i < n; i++) to[i] &= data[i]; /* as flash does */
    return 0;
}

void board_start(void);

void board_start(void)
{
    start_uart();
    *reg(0xE0000000u + SYST_RVR) = TURN - 1;
    *reg(0xE0000000u + SYST_CVR) = 0;
    *reg(0xE0000000u + SYST_CSR) = 5; /* the processor's clock, no interrupt */
}
