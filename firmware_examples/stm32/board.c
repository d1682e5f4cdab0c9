/* The three functions that an STM32 supplies: read a byte, write a byte, a clock. Here by registers of the STM32F407
 * (USART2, PA2 and PA3, 115200 baud from the 16 MHz oscillator it starts on); with ST's HAL the bodies would be
 *
 *     board_read:   return __HAL_UART_GET_FLAG(&huart2, UART_FLAG_RXNE) ? (int)(huart2.Instance->DR & 0xFF) : -1;
 *     board_write:  HAL_UART_Transmit(&huart2, &byte, 1, 10);
 *     board_ticks:  return DWT->CYCCNT;
 */
#include "model_in.h"

static volatile uint32_t *reg(uint32_t address)
{
    return (volatile uint32_t *)address;
}

enum { RCC_AHB1ENR = 0x40023830, RCC_APB1ENR = 0x40023840, GPIOA_MODER = 0x40020000, GPIOA_AFRL = 0x40020020,
       USART_SR = 0x40004400, USART_DR = 0x40004404, USART_BRR = 0x40004408, USART_CR1 = 0x4000440C };
#define DEMCR 0xE000EDFCu
#define DWT_CTRL 0xE0001000u
#define DWT_CYCCNT 0xE0001004u

const char board_name[] = "stm32f407";
const uint32_t board_tick_hertz = 16000000; /* cycles */

int board_read(void)
{
    return *reg(USART_SR) & 1u << 5 ? (int)(*reg(USART_DR) & 0xFF) : -1;
}

void board_write(uint8_t byte)
{
    while (!(*reg(USART_SR) & 1u << 7)) {
    }
    *reg(USART_DR) = byte;
}

uint32_t board_ticks(void)
{
    return *reg(DWT_CYCCNT);
}

static void start(void)
{
    *reg(RCC_AHB1ENR) |= 1u << 0;                                       /* port A */
    *reg(RCC_APB1ENR) |= 1u << 17;                                      /* USART2 */
    *reg(GPIOA_MODER) = (*reg(GPIOA_MODER) & ~(0xFu << 4)) | 0xAu << 4; /* PA2, PA3: alternate function */
    *reg(GPIOA_AFRL) = (*reg(GPIOA_AFRL) & ~(0xFFu << 8)) | 0x77u << 8; /* number 7: USART2 */
    *reg(USART_BRR) = 139;                                              /* 16 MHz / 115200 */
    *reg(USART_CR1) = 1u << 13 | 1u << 3 | 1u << 2;
    *reg(DEMCR) |= 1u << 24;
    *reg(DWT_CTRL) |= 1;
}

int main(void)
{
    start();
    ln_device_start(&THE_MODEL);
    for (;;) ln_device_poll();
}
