/* What runs before main: vectors, the floating-point unit, memory as C expects it, and paint on the stack. */
#include <stdint.h>

extern uint32_t _data, _data_end, _data_load, _bss, _bss_end, _stack, _stack_limit;
int main(void);

enum { PAINT = 0x5C };

__attribute__((noinline, used)) static void begin(void)
{
    uint32_t *from = &_data_load;
    for (uint32_t *to = &_data; to < &_data_end;) *to++ = *from++;
    for (uint32_t *to = &_bss; to < &_bss_end;) *to++ = 0;
    main();
    for (;;) {
    }
}

/* No C before this has run: a compiler may use the floating-point unit to copy. What lies below the stack pointer,
 * here all of the stack, is painted. */
__attribute__((naked, used)) void reset(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    __asm volatile("ldr r0, =0xE000ED88\n ldr r1, [r0]\n ldr r2, =0xF00000\n orr r1, r1, r2\n str r1, [r0]\n dsb\n isb\n");
#endif
    __asm volatile("ldr r0, =_stack_limit\n mov r1, sp\n ldr r2, =%0\n"
                   "1: cmp r0, r1\n bhs 2f\n str r2, [r0]\n add r0, #4\n b 1b\n"
                   "2: ldr r0, =begin\n bx r0\n"
                   :
                   : "i"(PAINT * 0x01010101));
}

static void hang(void)
{
    for (;;) {
    }
}

__attribute__((section(".vectors"), used)) static void (*const VECTORS[16])(void) = {
    (void (*)(void))&_stack, reset, hang, hang, hang, hang, hang, hang, hang, hang, hang, hang, hang, hang, hang, hang,
};

void board_stack(uint32_t *used, uint32_t *size);

void board_stack(uint32_t *used, uint32_t *size)
{
    const uint8_t *low = (const uint8_t *)&_stack_limit, *top = (const uint8_t *)&_stack;
    *size = (uint32_t)(top - low);
    while (low < top && *low == PAINT) low++;
    *used = (uint32_t)(top - low);
}
