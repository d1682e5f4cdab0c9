/* ln_explain: the failure that a model holds, as one or two sentences: where, found, expected, what to do.
 *
 * m->at, an offset in the file, decides the place: a header field, a tensor record, an operator record. What found
 * and expected mean is decided where ln_fail is called; each case of `detail` says it in words. */
#include "ln_cold.h"
#include "ln_internal.h"

#ifdef LN_TERSE
typedef int ln_explain_is_left_out; /* so that this is not an empty file */
#else

/* ---- the pen: counts all it is given, keeps what fits */

typedef struct pen {
    char *to;
    size_t cap, len;
} pen;

static void put_char(pen *p, char c)
{
    if (p->len + 1 < p->cap) p->to[p->len] = c;
    p->len++;
}

static void put(pen *p, const char *s)
{
    while (*s) put_char(p, *s++);
}

static void put_number(pen *p, uint64_t n)
{
    char digits[20];
    int count = 0;

    do digits[count++] = (char)('0' + n % 10);
    while (n /= 10);
    while (count) put_char(p, digits[--count]);
}

static void put_signed(pen *p, uint64_t bits) /* of a number below 2^31 in size, extended or not */
{
    const int negative = (uint32_t)bits >> 31 != 0;

    if (negative) put_char(p, '-');
    put_number(p, negative ? 0u - (uint32_t)bits : (uint32_t)bits);
}

static void put_hex(pen *p, uint32_t bits, int digits)
{
    while (digits-- > 0) put_char(p, "0123456789ABCDEF"[bits >> 4 * digits & 15]);
}

/* To about six digits: 0.0123457, 255, 3.5e+12. */
static void put_float(pen *p, float value)
{
    int exponent = 0, digits = 6;

    if (value < 0.0f) {
        put_char(p, '-');
        value = -value;
    }
    if (!(value <= 3.402823466e38f)) {
        put(p, value > 0.0f ? "infinity" : "NaN");
        return;
    }
    while (value >= 10.0f) value *= 0.1f, exponent++;
    while (value > 0.0f && value < 1.0f) value *= 10.0f, exponent--;
    uint32_t six = (uint32_t)(value * 100000.0f + 0.5f); /* the value is six * 10^(exponent - 5) */
    if (six >= 1000000u) six /= 10, exponent++;
    while (digits > 1 && six % 10 == 0) six /= 10, digits--;

    const int plain = exponent > -5 && exponent < 6, point = plain ? exponent : 0;
    char text[6];
    for (int i = digits; i > 0; six /= 10) text[--i] = (char)('0' + six % 10);
    for (int i = point < 0 ? point : 0; i < digits || i <= point; i++) { /* position 0: the first digit */
        if (i == point + 1) put_char(p, '.');
        put_char(p, i < 0 || i >= digits ? '0' : text[i]);
    }
    if (plain) return;
    put(p, exponent < 0 ? "e-" : "e+");
    put_number(p, (uint64_t)(exponent < 0 ? -exponent : exponent));
}

static void put_shape(pen *p, const ln_tensor *t)
{
    for (uint32_t d = 0; d < t->rank; d++) {
        if (d) put(p, " x ");
        put_number(p, t->dims[d]);
    }
}

/* ---- places */

enum { IN_HEADER, IN_TENSOR, IN_OP, IN_GOLDEN, ELSEWHERE };

/* The part of the file that m->at is in; *field: how far inside its record or section. */
static int part_of(const ln_model *m, uint32_t *field)
{
    const uint32_t at = m->at, ops = ln_op_record(m, 0);

    *field = at;
    if (at < LN_HEADER_BYTES) return IN_HEADER;
    if (m->op_count == 0 || at < m->program_at) return ELSEWHERE;
    *field = (at - m->program_at) % LN_TENSOR_BYTES;
    if (at < ops) return IN_TENSOR;
    *field = (at - ops) % LN_OP_BYTES;
    if (at < ln_op_record(m, m->op_count)) return IN_OP;
    *field = at - m->golden_at;
    return m->golden_bytes && at >= m->golden_at ? IN_GOLDEN : ELSEWHERE;
}

static const char *header_field(uint32_t at)
{
    switch (at) {
    case 4: return "the major version";
    case 8: return "the file's length";
    case 24: return "the input's type";
    case 25: return "the first output's type";
    case 26: return "the input's rank";
    case 27: return "the first output's rank";
    case 60: return "the weights' size";
    case 64: return "the program's offset";
    case 68: return "the program's size";
    case 72: return "the metadata's offset";
    case 76: return "the metadata's size";
    case 80: return "the golden section's offset";
    case 84: return "the golden section's size";
    case 88: return "the operator count";
    case 90: return "the tensor count";
    case 92: return "the arena's size";
    case 96: return "the resize rule";
    case 97: return "the fit rule";
    case 98: return "the colour rule";
    case 99: return "the inversion rule";
    case 124: return "the letterbox grey";
    }
    if (at >= 28 && at < 44) return "a dimension of the input";
    if (at >= 44 && at < 60) return "a dimension of the first output";
    if (at >= 100 && at < 112) return "a mean";
    if (at >= 112 && at < 124) return "a standard deviation";
    return at < LN_HEADER_BYTES ? "an unused byte" : "a fill byte between sections";
}

static void put_operator(pen *p, const ln_model *m, uint32_t index)
{
    ln_op op;

    ln_get_op(m, index, &op);
    put(p, "operator ");
    put_number(p, index);
    put(p, " (");
    put(p, ln_op_name(op.id));
    put(p, ")");
}

/* "operator 3 (conv2d), byte 1234: " */
static void put_place(pen *p, const ln_model *m)
{
    uint32_t field;

    switch (part_of(m, &field)) {
    case IN_HEADER: put(p, "header"); break;
    case IN_TENSOR: put(p, "tensor "); put_number(p, (m->at - m->program_at) / LN_TENSOR_BYTES); break;
    case IN_OP: put_operator(p, m, (m->at - ln_op_record(m, 0)) / LN_OP_BYTES); break;
    case IN_GOLDEN: put(p, "golden section"); break;
    default: put(p, "file");
    }
    put(p, ", byte ");
    put_number(p, m->at);
    put(p, ": ");
}

/* ---- particulars */

/* "stride is 0, 1; 1 to 255 is expected": the attribute 1 - found says which. */
static void put_attribute(pen *p, const ln_model *m)
{
    ln_op op;

    ln_get_op(m, (uint32_t)m->record, &op);
    const ln_attr *a = ln_attr_of(op.id, (uint32_t)m->found - 1);
    put(p, a->name);
    for (uint32_t k = 0; k < a->count; k++) {
        const uint8_t *v = op.attrs + a->at + k * a->size;
        put(p, k ? ", " : " is ");
        if (a->is_float) put_float(p, ln_f32(v));
        else put_number(p, a->size == 1 ? v[0] : a->size == 2 ? ln_u16(v) : ln_u32(v));
    }
    put(p, "; ");
    put_float(p, a->lo);
    put(p, " to ");
    put_float(p, a->hi);
    put(p, " is expected");
}

/* "28 x 28 x 1 to 26 x 26 x 16" */
static void put_shapes(pen *p, const ln_model *m)
{
    ln_call c;

    ln_load_call(m, (uint32_t)m->record, &c);
    for (uint32_t k = 0; k < c.op.n_inputs; k++) {
        if (k) put(p, " and ");
        put_shape(p, &c.in[k]);
    }
    put(p, " to ");
    put_shape(p, &c.out);
}

static int is_denormal(const ln_model *m) /* is what was found a float32 above 0, but too small? */
{
    return m->found != 0 && m->found < 0x00800000u;
}

static const char *preprocess_detail(const ln_model *m)
{
    if (m->at < 96)
        return m->at == 28 || m->at == 32 ? "%h is %n; at most %N is expected, as the input is a picture"
                                          : "%h is %n; %N is expected, as the input is a picture";
    if (m->at >= 100 && m->at < 124 && ln_i8_type(m->bin[24]) && m->bin[98] != LN_COLOR_NONE) {
        if (!m->expected) return "a number of a channel that a grey picture does not have is %d; 0 is expected";
        return m->at < 112 ? "a multiplier is %d; 1 to 4194303 is expected"
                           : "an offset is %d; -1073741823 to 1073741823 is expected";
    }
    if (m->at < 100 || m->at >= 124)
        return m->expected ? "%h is %n; 0 to %N is expected"
                           : "%h is %n; 0 is expected, as the input is no picture";
    if (m->expected != LN_COLOR_NONE && is_denormal(m)) return "%h is %r; at least 2^-126 is expected";
    if (m->expected != LN_COLOR_NONE)
        return m->at < 112 ? "%h is %r; a finite number is expected" : "%h is %r; a number above 0 is expected";
    return m->at < 112 ? "%h is %r; 0 is expected, as the input is no picture"
                       : "%h is %r; 1 is expected, as the input is no picture";
}

static const char *quant_detail(const ln_model *m, uint32_t field)
{
    ln_op op;

    ln_get_op(m, (uint32_t)m->record, &op);
    const uint32_t uses = ln_facts(op.id)->int8;
    switch (field) {
    case 16: return "its table begins with %n; at least %N is expected";
    case 52: return uses & LN_INT8_BOUNDS ? "lo is %d; at most %D is expected, as hi is" : "lo is %d; %D is expected";
    case 53: return "hi is %d; %D is expected";
    case 54:
        if (uses & LN_INT8_FINE) return "S is %n; 0 to %N is expected";
        return uses & LN_INT8_SHIFT ? "S is %n; 1 to %N is expected" : "S is %n; %N is expected";
    case 55: return "its border is %d; %D is expected";
    case 56:
        if (uses & LN_INT8_REQUANT) return "M1 is %d; %D or more is expected";
        return uses & LN_INT8_M1 ? "M1 is %d; -%D to %D is expected" : "M1 is %d; %D is expected";
    }
    return uses & LN_INT8_M2 ? "M2 is %d; -%D to %D is expected" : "M2 is %d; %D is expected";
}

static const char *lifetime_detail(const ln_model *m, uint32_t field)
{
    if (m->found >= m->op_count)
        return field == 28 ? "its first operator is %n; a number below %N is expected"
                           : "its last operator is %n; a number below %N is expected";
    if (field == 28)
        return m->record == 0 ? "its first operator is %n; 0 is expected, as it is the input"
                              : "its first operator is %n, which does not write it";
    if (m->expected < m->op_count) return "its last operator is %n, but operator %N still reads it";
    return "its last operator is %n, which is not where its life ends";
}

static const char *golden_detail(const ln_model *m, int part, uint32_t field)
{
    if (part == IN_HEADER) return "%h is %n; at least %N is expected";
    switch (field) {
    case 0: return "its version is %n; %N is expected";
    case 4: return "the number of golden inputs is %n; %N is expected";
    case 8: return "its operator count is %n; %N is expected";
    case 12: return "the kind of its inputs is %n; %N is expected";
    }
    return m->found < 256 ? "a fill byte is %n; 0 is expected" : "a value is %r; a finite number is expected";
}

static const char *selftest_detail(const ln_model *m, uint32_t field)
{
    ln_golden g;

    ln_golden_shape(m, &g);
    if (field < g.fixed) return "%o: the checksum of its weights is %x, and was %X at export";
    const uint64_t value = (field - g.fixed) % g.each - g.x_bytes;
    ln_op op;
    ln_get_op(m, (uint32_t)m->record, &op);
    if (value < g.y_bytes)
        return ln_i8_type(m->bin[ln_tensor_record(m, op.output) + 4])
                   ? "%o, golden input %i: an output is %d, and was %D at export"
                   : "%o, golden input %i: an output is %r, and was %R at export";
    if (ln_grade_of(m, (uint32_t)m->record) == LN_EXACT)
        return "%o, golden input %i: the checksum of y is %x, and was %X at export";
    return (value - g.y_bytes) % 8 ? "%o, golden input %i: the signed mean of y is %r, and was %R at export"
                                 : "%o, golden input %i: the mean of |y| is %r, and was %R at export";
}

/* The sentence without its remedy. %n %x %r: found as a number, in hex, as a float32; %N %X %R: expected. %b: found as
 * four bytes. %d %D: as signed numbers. %h: the header field. %a: the attribute and its range. %s: shapes from and to. %o: the operator. %i:
 * the golden input. */
static const char *detail(const ln_model *m)
{
    uint32_t field;
    const int part = part_of(m, &field);

    switch (m->status) {
    case LN_NOT_LITENET:
        return m->found == 0 || m->found == 0xFFFFFFFFu
                   ? "it starts with%b, a model with 4C 4E 45 54: nothing seems to have been written here"
                   : "it starts with%b, a model with 4C 4E 45 54 (LNET)";
    case LN_TRUNCATED: return "it has %n of %N bytes";
    case LN_EXTRA_BYTES: return "it has %n bytes; its header says %N";
    case LN_BAD_HEADER_CRC: return "the checksum of the header is %x; %X is stored";
    case LN_BAD_BODY_CRC: return "the checksum of all after the header is %x; %X is stored";
    case LN_NEWER_MAJOR: return "it has format %n; this LiteNet reads format %N";
    case LN_UNKNOWN_FEATURE: return "its feature bits are %x; known are %X";
    case LN_BAD_HEADER: return field == 88 ? "%h is %n; 1 to %N is expected" : "%h is %n; %N is expected";
    case LN_BEYOND_LIMITS: return "%h is %n; at most %N is expected";
    case LN_BAD_SECTION:
        return part == IN_HEADER && field % 8 == 4 ? "%h is %n; at most %N is expected"
                                                   : "%h is %n; %N is expected";
    case LN_BAD_PREPROCESS: return preprocess_detail(m);
    case LN_BAD_DTYPE:
        if (part != IN_OP)
            return m->features & LN_FEATURE_I8 ? "its type is %n; 0 or 2 is expected" : "its type is %n; %N is expected";
        if (field == 15) return "the type of its weights is %n; %N is expected";
        return field == 12 ? "its output has type %n; %N is expected" : "an input has type %n; %N is expected";
    case LN_BAD_RANK: return "its rank is %n; 1 to %N is expected";
    case LN_BAD_DIM:
        return m->expected ? "a dimension is %n; at least %N is expected"
                           : "an unused dimension is %n; %N is expected";
    case LN_TENSOR_TOO_LARGE: return "it makes %n elements; at most %N are allowed";
    case LN_BAD_FLAGS:
        return m->record < 0                   ? "no tensor is marked as output"
               : m->expected == LN_FLAG_INPUT ? "its flags are %n; %N is expected"
                                              : "its flags are %n; 0 or %N is expected";
    case LN_BAD_SCALE:
        if (field == 7) return "its zero point is byte %n; %N is expected";
        if (m->expected) return "its scale is %r; %R is expected";
        return is_denormal(m) ? "its scale is %r; at least 2^-126 is expected" : "its scale is %r; a number above 0 is expected";
    case LN_OUTSIDE_ARENA:
        return m->bin[ln_tensor_record(m, (uint32_t)m->record) + 6]
                   ? "its arena offset is %n; %N is expected, as the caller holds it"
                   : "it ends at byte %n of an arena of %N";
    case LN_MISALIGNED: return "its offset %n is not a multiple of %N";
    case LN_BAD_LIFETIME: return lifetime_detail(m, field);
    case LN_OVERLAP:
        return "it shares bytes with tensor %n, alive at operator %N";
    case LN_UNKNOWN_OP: return "its number is %n";
    case LN_BAD_ACTIVATION:
        return m->expected ? "its activation is %n; a number below %N is expected"
                           : "its activation is %n, but it takes none";
    case LN_BAD_ALGORITHM: return "its algorithm is %n; %N is expected";
    case LN_BAD_ATTRIBUTE:
        return m->found ? "%a" : "a byte after its attributes is %N; 0 is expected";
    case LN_BAD_QUANT: return quant_detail(m, field);
    case LN_BAD_TENSOR_INDEX:
        if (field == 14) return "the number of its inputs is %n; %N is expected";
        if (m->expected == LN_NO_TENSOR) return "an unused input is %n; %N is expected";
        return field == 12 ? "its output is %n; a number below %N is expected"
                           : "an input is %n; a number below %N is expected";
    case LN_BAD_ORDER:
        return "it reads tensor %n, which operator %N writes";
    case LN_BAD_SHAPE: return "it does not lead from %s";
    case LN_BAD_WEIGHTS:
        if (m->expected > 1) return "its weights end at byte %n, and all weights at byte %N";
        if (m->expected) return "%n bytes of weights are not what it needs from %s";
        return field == 16 ? "it takes no weights, but their offset is %n"
                           : "it takes no weights, but their size is %n";
    case LN_BAD_SCRATCH:
        return field == 24 ? "its scratch memory ends at byte %n of an arena of %N"
                           : "%n bytes of scratch memory are not what it needs from %s";
    case LN_BAD_GOLDEN: return golden_detail(m, part, field);
    case LN_BIN_MISALIGNED: return "it starts %n bytes past a multiple of 64";
    case LN_SELFTEST_FAILED: case LN_NOT_FINITE: return selftest_detail(m, field);
    case LN_OK: case LN_EMPTY_FILE: case LN_IS_LFS_POINTER: case LN_IS_HTML: case LN_IS_ONNX: case LN_IS_TFLITE:
    case LN_IS_ZIP: case LN_IS_GZIP: case LN_IS_IMAGE: case LN_IS_NUMPY: case LN_IS_JSON: case LN_NULL_POINTER:
    case LN_ARENA_TOO_SMALL: case LN_ARENA_MISALIGNED: case LN_BAD_IMAGE_SIZE: case LN_BAD_CHANNELS:
    case LN_NO_PREPROCESS: case LN_NO_GOLDEN: case LN_STOPPED: case LN_FILE_NOT_FOUND: case LN_FILE_UNREADABLE:
    case LN_FILE_TOO_LARGE: case LN_FILE_CHANGED: case LN_INPUT_NOT_FINITE:
        return NULL; /* the text of the status says it all */
    }
    return NULL;
}

static void put_detail(pen *p, const ln_model *m, const char *s)
{
    ln_golden g;

    for (; *s; s++) {
        if (*s != '%') {
            put_char(p, *s);
            continue;
        }
        switch (*++s) {
        case 'n': put_number(p, m->found); break;
        case 'N': put_number(p, m->expected); break;
        case 'd': put_signed(p, m->found); break;
        case 'D': put_signed(p, m->expected); break;
        case 'x': put(p, "0x"), put_hex(p, (uint32_t)m->found, 8); break;
        case 'X': put(p, "0x"), put_hex(p, (uint32_t)m->expected, 8); break;
        case 'b':
            for (int shift = 0; shift < 32; shift += 8) {
                put_char(p, ' ');
                put_hex(p, (uint32_t)m->found >> shift, 2);
            }
            break;
        case 'r': put_float(p, ln_float_of((uint32_t)m->found)); break;
        case 'R': put_float(p, ln_float_of((uint32_t)m->expected)); break;
        case 'h': put(p, header_field(m->at)); break;
        case 'a': put_attribute(p, m); break;
        case 's': put_shapes(p, m); break;
        case 'o': put_operator(p, m, (uint32_t)m->record); break;
        case 'i':
            ln_golden_shape(m, &g);
            put_number(p, (m->at - m->golden_at - g.fixed) / g.each);
        }
    }
}

size_t ln_explain(const ln_model *m, char *text, size_t cap)
{
    pen p = {text, text ? cap : 0, 0};
    const ln_status s = m ? m->status : LN_NULL_POINTER;
    const char *what = m ? detail(m) : NULL;

    const int at_place = s >= LN_BAD_HEADER && s <= LN_BAD_GOLDEN; /* of the file, which says more than the status */

    if (at_place) {
        put_place(&p, m);
    } else {
        put(&p, ln_status_text(s));
        if (what) put(&p, ": ");
    }
    if (what) put_detail(&p, m, what);
    put(&p, s == LN_OK ? "." : ". ");
    put(&p, ln_remedy(at_place && m->minor > LN_KNOWN_MINOR ? LN_UNKNOWN_FEATURE : s)); /* what is wrong may be new */
    if (p.cap) p.to[p.len < p.cap ? p.len : p.cap - 1] = 0;
    return p.len;
}

#endif

#include "ln_cold_end.h"
