/* What runs before main on an emulated Cortex-M: main gets "jobs" and "results", files of the folder that the emulator was
 * started in. It reaches them through semihosting (newlib's rdimon). */
#include <stddef.h>
#include <stdlib.h>

extern void _top(void); /* where the stack begins, which grows down; a function only to be one of the vectors */
int main(int argc, char **argv);
void initialise_monitor_handles(void);
void _fini(void);

void _fini(void) /* newlib's exit calls it */
{
}

static __attribute__((used, noreturn)) void begin(void)
{
    static char *argv[] = {"program", "jobs", "results", NULL};
    initialise_monitor_handles();
    exit(main(3, argv));
}

__attribute__((naked, used)) static void reset(void)
{
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE) /* they are off at first */
    __asm volatile("ldr r0, =0xE000ED88\n ldr r1, [r0]\n ldr r2, =0xF00000\n orr r1, r1, r2\n str r1, [r0]\n dsb\n isb\n");
#endif
    __asm volatile("ldr r0, =begin\n bx r0\n");
}

static void fault(void)
{
    exit(9);
}

__attribute__((section(".vectors"), used)) static void (*const VECTORS[16])(void) = {
    _top, reset, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault,
    fault,
};
