/* A core: the module that pages fetch first, without int8 and the operators that importers alone make. It refuses what it
 * does not have, or does not like, without a word; litenet.js then fetches the full module, which says what is wrong. */
#include "fast_int8.h"

ln_status ln_sniff(const uint8_t *b, size_t len)
{
    (void)b, (void)len;
    return LN_NOT_LITENET;
}

/* No file with int8 comes here. */
const ln_int8 *ln_int8_for(const ln_kernels *kernels)
{
    (void)kernels;
    return NULL;
}

void ln_plan_int8(ln_builder *b, ln_step *s)
{
    (void)b, (void)s;
}

void ln_plan_int8_joined(ln_builder *b, uint32_t i, const ln_step *alone, ln_step *s)
{
    (void)b, (void)i, (void)alone, (void)s;
}
