/* The end of what ln_cold.h begins. */
#if defined(__clang__)
#pragma clang attribute pop
#endif
