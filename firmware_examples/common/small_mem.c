/* memcpy, memmove and memset in 60 bytes, for flash rather than speed: those of most C libraries take 400. The compiler
 * calls them for copies of structures; the kernels do not. Link it where the chip's library has none of its own. */
#include <stddef.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("Os,no-tree-loop-distribute-patterns") /* or each would become a call of itself */
#endif

void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int value, size_t n);

void *memcpy(void *to, const void *from, size_t n)
{
    char *t = to;
    const char *f = from;
    while (n--) *t++ = *f++;
    return to;
}

void *memmove(void *to, const void *from, size_t n)
{
    char *t = to;
    const char *f = from;
    if (t < f) return memcpy(to, from, n);
    while (n--) t[n] = f[n];
    return to;
}

void *memset(void *to, int value, size_t n)
{
    char *t = to;
    while (n--) *t++ = (char)value;
    return to;
}
