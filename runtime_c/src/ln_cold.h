/* For files whose code is not where time goes, most of it run once, at open: small rather than fast, whatever the
 * build asks for. Their last line includes ln_cold_end.h. No guard: each pair stands once in a file. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)
#elif defined(__GNUC__)
#pragma GCC optimize("Os")
#endif
