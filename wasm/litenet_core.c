/* A core: the module that pages fetch first. It refuses what it does not have, or does not like, without a word;
 * litenet.js then fetches the full module, which has the operators below and says what is wrong. */
#include "ln_internal.h"

ln_status ln_sniff(const uint8_t *b, size_t len)
{
    (void)b, (void)len;
    return LN_NOT_LITENET;
}

/* Operators that importers alone make. */
#define LEFT_OUT(name)                                                                      \
    ln_status ln_##name##_check(const ln_call *c) { return (void)c, LN_UNKNOWN_OP; }        \
    void ln_##name##_run(const ln_call *c) { (void)c; }                                     \
    uint64_t ln_##name##_macs(const ln_call *c) { return (void)c, 0; }

LEFT_OUT(concat)
LEFT_OUT(mul)
LEFT_OUT(pad)
LEFT_OUT(reshape)
LEFT_OUT(resize)
LEFT_OUT(slice)
LEFT_OUT(transpose)
LEFT_OUT(unary)
