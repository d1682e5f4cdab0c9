/* What rp2040_pico/board.c uses of the Pico SDK, by its documentation: to compile against, not to run. */
#include <stdbool.h>
#include <stdint.h>
#define PICO_FLASH_SIZE_BYTES (2 * 1024 * 1024)
#define XIP_BASE 0x10000000
typedef struct stdio_driver stdio_driver_t;
extern stdio_driver_t stdio_usb;
bool stdio_init_all(void);
void stdio_set_translate_crlf(stdio_driver_t *driver, bool translate);
int getchar_timeout_us(uint32_t timeout_us);
int putchar_raw(int c);
uint32_t time_us_32(void);
