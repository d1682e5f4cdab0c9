/* For files whose code runs once, at open or after a failure: small rather than fast, whatever the build asks for.
 * gcc takes the pragma; clang has no such thing for a file and builds them as the rest. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("Os")
#endif
