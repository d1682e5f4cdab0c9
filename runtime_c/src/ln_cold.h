/* For files whose code is not where time goes, most of it run once, at open: small rather than fast, whatever the
 * build asks for.
 * gcc takes the pragma; clang has no such thing for a file and builds them as the rest. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("Os")
#endif
