/* What esp32/main/main.c uses of ESP-IDF 5, by its documentation: to compile against, not to run. */
#include <stddef.h>
#include <stdint.h>
typedef int uart_port_t;
typedef int esp_err_t;
typedef unsigned TickType_t;
enum { UART_NUM_0, UART_DATA_8_BITS = 3, UART_PARITY_DISABLE = 0, UART_STOP_BITS_1 = 1, UART_HW_FLOWCTRL_DISABLE = 0 };
typedef struct {
    int baud_rate, data_bits, parity, stop_bits, flow_ctrl;
} uart_config_t;
int uart_read_bytes(uart_port_t port, void *to, uint32_t length, TickType_t ticks);
int uart_write_bytes(uart_port_t port, const void *from, size_t size);
esp_err_t uart_driver_install(uart_port_t port, int rx, int tx, int queue, void *handle, int flags);
esp_err_t uart_param_config(uart_port_t port, const uart_config_t *config);
