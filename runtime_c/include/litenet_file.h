/* Reading a model from disk, for machines with an operating system. Not part of the core.
 *
 *     ln_file f;
 *     ln_status s = ln_file_open(&f, "digits.bin");    // mapped, so a large model opens at once
 *     if (s == LN_OK) s = ln_open(&m, f.bytes, f.len);
 *     ...
 *     ln_file_close(&f);                               // after the last use of m
 */
#ifndef LITENET_FILE_H
#define LITENET_FILE_H

#include "litenet.h"

#ifdef __cplusplus
extern "C" {
#endif
#if defined(LN_BUILDS_SHARED) && defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

typedef struct ln_file {
    const void *bytes; /* never NULL after LN_OK, also for an empty file; starts at a multiple of 16 */
    size_t len;
    void *mapping;     /* what ln_file_close gives back: a mapping, or a block of memory */
    int mapped;
    int descriptor;    /* POSIX: of the mapped file, else -1 */
    int64_t changed;   /* POSIX: when it was last written to, in nanoseconds */
} ln_file;

/* Map the file at `path` for reading; what cannot be mapped (a pipe, an odd file system) is read into memory. path is
 * UTF-8, also on Windows. LN_FILE_NOT_FOUND, LN_FILE_UNREADABLE or LN_FILE_TOO_LARGE if that fails; f then holds
 * nothing. A mapped file must not be cut short while it is in use, as reading what is gone ends the process (SIGBUS):
 * write new versions beside it and rename. */
ln_status ln_file_open(ln_file *f, const char *path);

/* Has the file changed since it was mapped? LN_OK, or LN_FILE_CHANGED; then do not touch f->bytes any more. One system
 * call, for programs that run for long: before each run, say. What was read into memory cannot change, nor can a file
 * that Windows has mapped. */
ln_status ln_file_check(const ln_file *f);

/* Give it back. Closing twice, or after a failed open, does nothing. */
void ln_file_close(ln_file *f);

#if defined(LN_BUILDS_SHARED) && defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
