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

/* ---- clock: a counter of 32 bits; SysTick's 24 are too few for a net that takes seconds */

#ifndef BOARD_HERTZ
#define BOARD_HERTZ 25000000
#endif
const uint32_t board_tick_hertz = BOARD_HERTZ;

#if defined(BOARD_NRF51)
enum { TIMER = 0x40008000, TIMER_START = 0x000, TIMER_CAPTURE = 0x040, BITMODE = 0x508, PRESCALER = 0x510, CC = 0x540 };

static void start_clock(void)
{
    *reg(TIMER + BITMODE) = 3; /* 32 bits */
    *reg(TIMER + PRESCALER) = 0;
    *reg(TIMER + TIMER_START) = 1;
}

uint32_t board_ticks(void)
{
    *reg(TIMER + TIMER_CAPTURE) = 1;
    return *reg(TIMER + CC);
}
#elif defined(BOARD_COUNTER) /* the system counter of Arm's SSE-300: its control, and its low word */
static void start_clock(void)
{
    *reg(BOARD_COUNTER) = 1;
}

uint32_t board_ticks(void)
{
    return *reg(BOARD_COUNTER + 8);
}
#else /* a timer of Arm's CMSDK, which counts down */
enum { TIMER = 0x40000000, TIMER_CONTROL = 0, TIMER_VALUE = 4, TIMER_RELOAD = 8 };

static void start_clock(void)
{
    *reg(TIMER + TIMER_RELOAD) = *reg(TIMER + TIMER_VALUE) = 0xFFFFFFFFu;
    *reg(TIMER + TIMER_CONTROL) = 1;
}

uint32_t board_ticks(void)
{
    return ~*reg(TIMER + TIMER_VALUE);
}
#endif

/* ---- slots for models: memory that can be written where qemu has any */

#ifdef BOARD_SLOTS
const uint32_t board_slot_bytes = 512 << 10;

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
#endif

void board_start(void);

void board_start(void)
{
    start_uart();
    start_clock();
}
