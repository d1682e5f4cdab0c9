/* ln_file_open: a file as bytes, by mmap on POSIX systems and MapViewOfFile on Windows, by reading elsewhere. */
#if !defined(_WIN32)
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64
#define _DARWIN_C_SOURCE /* on macOS, for the nanoseconds of st_mtimespec */
#endif

#include "litenet_file.h"

#include <stdio.h>
#include <stdlib.h>

static const uint32_t nothing[4] = {0}; /* what an empty file points at */

enum { FIRST_BLOCK = 1 << 16 };
static const uint64_t LIMIT = 0xFFFFFFFFu; /* the format counts its bytes in 32 bits */

/* The rest of a stream, into memory that grows by doubling. Takes the stream over. */
static ln_status read_all(ln_file *f, FILE *stream)
{
    unsigned char *block = NULL;
    size_t len = 0, cap = 0;
    ln_status s = LN_OK;

    for (;;) {
        if (len == cap) {
            const size_t bigger = cap ? 2 * cap : FIRST_BLOCK;
            unsigned char *grown = bigger > cap ? realloc(block, bigger) : NULL;
            if (grown == NULL) {
                s = LN_FILE_TOO_LARGE;
                break;
            }
            block = grown;
            cap = bigger;
        }
        const size_t got = fread(block + len, 1, cap - len, stream);
        len += got;
        if (len > LIMIT) {
            s = LN_FILE_TOO_LARGE;
            break;
        }
        if (got == 0) {
            if (ferror(stream)) s = LN_FILE_UNREADABLE;
            break;
        }
    }
    fclose(stream);
    if (s != LN_OK || len == 0) {
        free(block);
        return s;
    }
    f->bytes = f->mapping = block;
    f->len = len;
    return LN_OK;
}

#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

static ln_status why(DWORD error)
{
    return error == ERROR_FILE_NOT_FOUND || error == ERROR_PATH_NOT_FOUND || error == ERROR_INVALID_NAME
               ? LN_FILE_NOT_FOUND
               : LN_FILE_UNREADABLE;
}

static ln_status map(ln_file *f, const char *path)
{
    wchar_t wide[32768]; /* the longest path that Windows takes */
    LARGE_INTEGER size;
    ln_status s = LN_OK;

    if (!MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, 32768)) return LN_FILE_NOT_FOUND;
    const HANDLE file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, NULL, OPEN_EXISTING,
                                    FILE_ATTRIBUTE_NORMAL, NULL);
    if (file == INVALID_HANDLE_VALUE) return why(GetLastError());
    if (!GetFileSizeEx(file, &size)) {
        FILE *stream = _wfopen(wide, L"rb"); /* a pipe or device */
        s = stream ? read_all(f, stream) : LN_FILE_UNREADABLE;
    } else if ((uint64_t)size.QuadPart > LIMIT) {
        s = LN_FILE_TOO_LARGE;
    } else if (size.QuadPart > 0) {
        const HANDLE mapping = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
        f->mapping = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0) : NULL;
        if (mapping) CloseHandle(mapping); /* the view keeps it */
        if (f->mapping) {
            f->bytes = f->mapping;
            f->len = (size_t)size.QuadPart;
            f->mapped = 1;
        } else {
            FILE *stream = _wfopen(wide, L"rb");
            s = stream ? read_all(f, stream) : LN_FILE_UNREADABLE;
        }
    }
    CloseHandle(file);
    return s;
}

static void unmap(ln_file *f)
{
    UnmapViewOfFile(f->mapping);
}

static int has_changed(const ln_file *f)
{
    (void)f; /* a mapped file can be neither cut short nor written to: nobody else may open it for that */
    return 0;
}

#elif defined(__unix__) || defined(__APPLE__)

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t written_at(const struct stat *st)
{
#if defined(__APPLE__)
    return (int64_t)st->st_mtimespec.tv_sec * 1000000000 + st->st_mtimespec.tv_nsec;
#else
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
#endif
}

static int has_changed(const ln_file *f)
{
    struct stat st;

    return fstat(f->descriptor, &st) != 0 || (uint64_t)st.st_size != f->len || written_at(&st) != f->changed;
}

static ln_status map(ln_file *f, const char *path)
{
    struct stat st;
    const int fd = open(path, O_RDONLY);

    if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? LN_FILE_NOT_FOUND : LN_FILE_UNREADABLE;
    if (fstat(fd, &st) != 0 || S_ISDIR(st.st_mode)) {
        close(fd);
        return LN_FILE_UNREADABLE;
    }
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > LIMIT) {
        close(fd);
        return LN_FILE_TOO_LARGE;
    }
    if (S_ISREG(st.st_mode) && st.st_size > 0) {
        void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (at != MAP_FAILED) {
            f->bytes = f->mapping = at;
            f->len = (size_t)st.st_size;
            f->mapped = 1;
            f->descriptor = fd;
            f->changed = written_at(&st);
            if (!has_changed(f)) return LN_OK; /* since its size was asked */
            ln_file_close(f);
            return LN_FILE_CHANGED;
        }
        if (errno == ENOMEM) { /* 32 bits have no room for it, neither mapped nor read */
            close(fd);
            return LN_FILE_TOO_LARGE;
        }
    }
    FILE *stream = fdopen(fd, "rb");
    if (stream == NULL) {
        close(fd);
        return LN_FILE_UNREADABLE;
    }
    return read_all(f, stream);
}

static void unmap(ln_file *f)
{
    munmap(f->mapping, f->len);
    close(f->descriptor);
}

#else

#include <errno.h>

static ln_status map(ln_file *f, const char *path)
{
    FILE *stream = fopen(path, "rb");

    if (stream == NULL) return errno == ENOENT ? LN_FILE_NOT_FOUND : LN_FILE_UNREADABLE;
    return read_all(f, stream);
}

static void unmap(ln_file *f)
{
    (void)f; /* nothing is ever mapped here */
}

static int has_changed(const ln_file *f)
{
    (void)f;
    return 0;
}

#endif

static void forget(ln_file *f)
{
    f->bytes = NULL;
    f->len = 0;
    f->mapping = NULL;
    f->mapped = 0;
    f->descriptor = -1;
    f->changed = 0;
}

ln_status ln_file_open(ln_file *f, const char *path)
{
    if (f == NULL) return LN_NULL_POINTER;
    forget(f);
    if (path == NULL) return LN_NULL_POINTER;
    const ln_status s = map(f, path);
    if (s == LN_OK && f->bytes == NULL) f->bytes = nothing;
    return s;
}

void ln_file_close(ln_file *f)
{
    if (f == NULL) return;
    if (f->mapped) unmap(f);
    else free(f->mapping);
    forget(f);
}

ln_status ln_file_check(const ln_file *f)
{
    if (f == NULL || f->bytes == NULL) return LN_NULL_POINTER;
    return f->mapped && has_changed(f) ? LN_FILE_CHANGED : LN_OK;
}
