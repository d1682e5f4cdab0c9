/* ln_open: everything about the file as a whole: is it ours, complete, undamaged, and do its sections stand where
 * they should? ln_check.c looks into the records, ln_sniff.c at files that are something else.
 *
 * Nothing is believed before it is tested, and tests are written so that they cannot wrap: a sum of 32-bit numbers
 * of the file is taken in 64 bits. Header layout and rules: FORMAT.md. */
#include "ln_cold.h"
#include "ln_internal.h"

#ifndef LN_TERSE
ln_status ln_fail(ln_model *m, ln_status status, int32_t record, uint32_t at, uint64_t found, uint64_t expected)
{
    m->status = status;
    m->record = record;
    m->at = at;
    m->found = found;
    m->expected = expected;
    m->len = 0; /* not open */
    return status;
}
#endif

#ifdef LN_TERSE
#define SNIFF(b, len) LN_NOT_LITENET
#else
#define SNIFF ln_sniff
#endif

/* The first 24 bytes, which every format version shares, and both checksums. */
static ln_status check_envelope(ln_model *m, const uint8_t *b, size_t len, ln_checksum *checksum)
{
    static const uint8_t magic[4] = {'L', 'N', 'E', 'T'}, zero[4] = {0, 0, 0, 0};

    for (size_t i = 0; i < 4 && i < len; i++)
        if (b[i] != magic[i]) return ln_fail(m, SNIFF(b, len), -1, 0, len < 4 ? b[0] : ln_u32(b), ln_u32(magic));
    if (len < LN_HEADER_BYTES) return ln_fail(m, LN_TRUNCATED, -1, (uint32_t)len, len, LN_HEADER_BYTES);

    uint32_t crc = ln_crc32(ln_crc32(0, b, 12), zero, 4);
    crc = ln_crc32(crc, b + 16, LN_HEADER_BYTES - 16);
    if (crc != ln_u32(b + 12)) return ln_fail(m, LN_BAD_HEADER_CRC, -1, 12, crc, ln_u32(b + 12));

    m->major = ln_u16(b + 4);
    m->minor = ln_u16(b + 6);
    m->features = ln_u32(b + 20);
    if (m->major > 1) return ln_fail(m, LN_NEWER_MAJOR, -1, 4, m->major, 1);
    if (m->major < 1) return ln_fail(m, LN_BAD_HEADER, -1, 4, m->major, 1);
    if (m->features & ~(uint32_t)LN_KNOWN_FEATURES)
        return ln_fail(m, LN_UNKNOWN_FEATURE, -1, 20, m->features, LN_KNOWN_FEATURES);

    const uint32_t size = ln_u32(b + 8);
    if (len < size) return ln_fail(m, LN_TRUNCATED, -1, (uint32_t)len, len, size);
    if (len > size) return ln_fail(m, LN_EXTRA_BYTES, -1, size, len, size);

    crc = checksum(0, b + LN_HEADER_BYTES, len - LN_HEADER_BYTES);
    if (crc != ln_u32(b + 16)) return ln_fail(m, LN_BAD_BODY_CRC, -1, 16, crc, ln_u32(b + 16));
    return LN_OK;
}

/* Sections stand in order, each at the next multiple of 64 after the one before, zeros between; an empty one has
 * offset 0. So the sizes alone decide every offset, and there is one right value for each. */
static ln_status check_sections(ln_model *m, uint32_t len)
{
    const uint8_t *b = m->bin;
    if (m->weights_bytes > len - LN_HEADER_BYTES)
        return ln_fail(m, LN_BAD_SECTION, -1, 60, m->weights_bytes, len - LN_HEADER_BYTES);

    uint32_t end = LN_HEADER_BYTES + m->weights_bytes; /* never beyond len */
    for (uint32_t field = 64; field <= 80; field += 8) { /* program, metadata, golden */
        const uint32_t at = ln_word_at(b + field), size = ln_word_at(b + field + 4);
        if (size ? at < end || at - end > 63 || at % 64 : at != 0)
            return ln_fail(m, LN_BAD_SECTION, -1, field, at, size ? ((uint64_t)end + 63) / 64 * 64 : 0);
        if (size == 0) continue;
        if (at > len || size > len - at)
            return ln_fail(m, LN_BAD_SECTION, -1, field + 4, size, at > len ? 0 : len - at);
        for (uint32_t i = end; i < at; i++)
            if (b[i]) return ln_fail(m, LN_BAD_SECTION, -1, i, b[i], 0);
        end = at + size;
    }
    if (end != len) return ln_fail(m, LN_BAD_SECTION, -1, 8, len, end);
    return LN_OK;
}

static ln_status check_counts(ln_model *m, uint32_t ops, uint32_t tensors)
{
    const uint32_t program = tensors * LN_TENSOR_BYTES + ops * LN_OP_BYTES; /* of 16-bit numbers */

    if (ops < 1 || ops > LN_MAX_OPS) return ln_fail(m, LN_BAD_HEADER, -1, 88, ops, LN_MAX_OPS);
    if (tensors != ops + 1) return ln_fail(m, LN_BAD_HEADER, -1, 90, tensors, (uint64_t)ops + 1);
    if (m->program_bytes != program) return ln_fail(m, LN_BAD_HEADER, -1, 68, m->program_bytes, program);
    for (uint32_t i = 125; i < LN_HEADER_BYTES; i++)
        if (m->bin[i]) return ln_fail(m, LN_BAD_HEADER, -1, i, m->bin[i], 0);
    m->op_count = ops;
    m->tensor_count = tensors;
    return LN_OK;
}

#if defined(LN_MOST_OPS) || defined(LN_MOST_ARENA)
/* What a build for one device sets, so that its arena can be an array. */
static ln_status check_limits(ln_model *m)
{
#ifdef LN_MOST_OPS
    if (m->op_count > LN_MOST_OPS) return ln_fail(m, LN_BEYOND_LIMITS, -1, 88, m->op_count, LN_MOST_OPS);
#endif
#ifdef LN_MOST_ARENA
    if (m->arena_bytes > LN_MOST_ARENA) return ln_fail(m, LN_BEYOND_LIMITS, -1, 92, m->arena_bytes, LN_MOST_ARENA);
#endif
    return m->status; /* LN_OK */
}
#endif

static ln_status check_all(ln_model *m, const uint8_t *b, size_t len, ln_checksum *checksum)
{
    ln_status s;

    if (len == 0) return ln_fail(m, LN_EMPTY_FILE, -1, 0, 0, 0);
    if (b == NULL) return ln_fail(m, LN_NULL_POINTER, -1, 0, 0, 0);
    if ((s = check_envelope(m, b, len, checksum)) != LN_OK) return s;
    if ((uintptr_t)b % 4) return ln_fail(m, LN_BIN_MISALIGNED, -1, 0, (uintptr_t)b % 64, 4);

    m->bin = b;
    m->weights_bytes = ln_word_at(b + 60);
    if ((s = check_sections(m, (uint32_t)len)) != LN_OK) return s;
    m->program_at = ln_word_at(b + 64);
    m->program_bytes = ln_word_at(b + 68);
    m->metadata_at = ln_word_at(b + 72);
    m->metadata_bytes = ln_word_at(b + 76);
    m->golden_at = ln_word_at(b + 80);
    m->golden_bytes = ln_word_at(b + 84);
    m->arena_bytes = ln_word_at(b + 92);

    if ((s = check_counts(m, ln_u16(b + 88), ln_u16(b + 90))) != LN_OK) return s;
#if defined(LN_MOST_OPS) || defined(LN_MOST_ARENA)
    if ((s = check_limits(m)) != LN_OK) return s;
#endif
#ifndef LN_TERSE /* a chip that prepares no pictures need not have the code; ln_preprocess looks itself */
    if ((s = ln_check_preprocessing(m)) != LN_OK) return s;
#endif
    if ((s = ln_check_records(m)) != LN_OK) return s;
    m->len = (uint32_t)len; /* from here the accessors answer; ln_fail closes again */
#ifdef LN_TERSE /* a chip that never runs ln_selftest need not have the code; ln_selftest looks itself */
    return LN_OK;
#else
    return ln_check_golden(m);
#endif
}

ln_status ln_open_checked(ln_model *m, const void *bin, size_t len, ln_checksum *checksum)
{
    if (m == NULL) return LN_NULL_POINTER;
    *m = (ln_model){0};
    m->record = -1;
    return m->status = check_all(m, bin, len, checksum);
}

ln_status ln_open(ln_model *m, const void *bin, size_t len)
{
    return ln_open_checked(m, bin, len, ln_crc32);
}

#include "ln_cold_end.h"
