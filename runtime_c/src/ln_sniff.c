/* ln_sniff: what a file is that does not start with our magic, so that the message can say what to do.
 *
 * Most formats are known by their first bytes. Text may start with a byte order mark and blanks. */
#include "ln_cold.h"
#include "ln_internal.h"

typedef struct mark {
    uint8_t status, at, size; /* LN_IS_...; where the bytes stand, and how many they are */
    char bytes[24];
} mark;

#define MARK(status, at, bytes) {status, at, sizeof(bytes) - 1, bytes}

static const mark MARKS[] = {
    MARK(LN_IS_LFS_POINTER, 0, "version https://git-lfs"),
    MARK(LN_IS_ZIP, 0, "PK\3\4"),
    MARK(LN_IS_ZIP, 0, "PK\5\6"), /* an empty archive */
    MARK(LN_IS_GZIP, 0, "\x1f\x8b"),
    MARK(LN_IS_NUMPY, 0, "\x93NUMPY"),
    MARK(LN_IS_TFLITE, 4, "TFL3"),
    MARK(LN_IS_IMAGE, 0, "\x89PNG"),
    MARK(LN_IS_IMAGE, 0, "\xff\xd8\xff"), /* JPEG */
    MARK(LN_IS_IMAGE, 0, "GIF8"),
    MARK(LN_IS_IMAGE, 0, "II*\0"), /* TIFF, of either byte order */
    MARK(LN_IS_IMAGE, 0, "MM\0*"),
    MARK(LN_IS_IMAGE, 8, "WEBP"),
};

static const mark TEXTS[] = { /* after blanks, in lower or upper case */
    MARK(LN_IS_HTML, 0, "<!doctype"),
    MARK(LN_IS_HTML, 0, "<html"),
    MARK(LN_IS_HTML, 0, "<head"),
    MARK(LN_IS_HTML, 0, "<?xml"),
};

/* Do the bytes of m stand in b[0..len)? `fold` 0x20 takes upper-case letters of b for lower-case ones. */
static int stands(const mark *m, const uint8_t *b, size_t len, uint8_t fold)
{
    if (len < (size_t)m->at + m->size) return 0;
    for (uint32_t i = 0; i < m->size; i++) {
        const uint8_t c = b[m->at + i];
        if (c != (uint8_t)m->bytes[i] && !(c >= 'A' && c <= 'Z' && (c | fold) == (uint8_t)m->bytes[i])) return 0;
    }
    return 1;
}

static size_t blanks(const uint8_t *b, size_t len) /* how many b starts with */
{
    size_t n = 0;

    while (n < len && (b[n] == ' ' || (b[n] >= '\t' && b[n] <= '\r'))) n++;
    return n;
}

/* BMP: four reserved bytes are zero. PBM, PGM, PPM: P, a digit, a blank. */
static int is_bitmap(const uint8_t *b, size_t len)
{
    if (len >= 14 && b[0] == 'B' && b[1] == 'M') return ln_u32(b + 6) == 0;
    return len >= 3 && b[0] == 'P' && b[1] >= '1' && b[1] <= '6' && blanks(b + 2, 1);
}

/* ONNX has no magic: it is a protobuf message whose field 1, a small version number, comes first, and whose next
 * field is one of those a model has: producer, version, domain, doc, graph, opset. */
static int is_onnx(const uint8_t *b, size_t len)
{
    if (len < 3 || b[0] != 0x08 || b[1] < 1 || b[1] > 31) return 0;
    switch (b[2]) {
    case 0x12: case 0x1A: case 0x22: case 0x28: case 0x32: case 0x3A: case 0x42: return 1;
    }
    return 0;
}

/* '{' or '[', then what can stand there in JSON. */
static int is_json(const uint8_t *b, size_t len)
{
    if (len == 0 || (b[0] != '{' && b[0] != '[')) return 0;
    const size_t next = 1 + blanks(b + 1, len - 1);
    if (next == len) return 1;
    const uint8_t c = b[next];
    return c == '"' || c == '}' || c == ']' || c == '{' || c == '[' || c == '-' || (c >= '0' && c <= '9');
}

ln_status ln_sniff(const uint8_t *b, size_t len)
{
    for (size_t i = 0; i < sizeof MARKS / sizeof MARKS[0]; i++)
        if (stands(&MARKS[i], b, len, 0)) return (ln_status)MARKS[i].status;
    if (is_bitmap(b, len)) return LN_IS_IMAGE;
    if (is_onnx(b, len)) return LN_IS_ONNX;

    size_t text = len >= 3 && b[0] == 0xEF && b[1] == 0xBB && b[2] == 0xBF ? 3 : 0; /* byte order mark */
    text += blanks(b + text, len - text);
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++)
        if (stands(&TEXTS[i], b + text, len - text, 0x20)) return (ln_status)TEXTS[i].status;
    return is_json(b + text, len - text) ? LN_IS_JSON : LN_NOT_LITENET;
}

#include "ln_cold_end.h"
