/* ESP32 with ESP-IDF: UART 0, which the boards' USB plug is wired to, and the microsecond timer. */
#include "driver/uart.h"
#include "esp_log.h"
#include "esp_timer.h"

#include "model_in.h"

const char board_name[] = "esp32";
const uint32_t board_tick_hertz = 1000000;

int board_read(void)
{
    uint8_t byte;
    return uart_read_bytes(UART_NUM_0, &byte, 1, 1) == 1 ? byte : -1; /* waits a tick, so that the idle task runs */
}

void board_write(uint8_t byte)
{
    uart_write_bytes(UART_NUM_0, &byte, 1);
}

uint32_t board_ticks(void)
{
    return (uint32_t)esp_timer_get_time();
}

void app_main(void)
{
    const uart_config_t line = {.baud_rate = 115200, .data_bits = UART_DATA_8_BITS, .parity = UART_PARITY_DISABLE,
                                .stop_bits = UART_STOP_BITS_1, .flow_ctrl = UART_HW_FLOWCTRL_DISABLE};
    esp_log_level_set("*", ESP_LOG_NONE); /* the line is for frames alone */
    uart_driver_install(UART_NUM_0, 1024, 1024, 0, NULL, 0);
    uart_param_config(UART_NUM_0, &line);
    ln_device_start(&THE_MODEL);
    for (;;) ln_device_poll();
}
