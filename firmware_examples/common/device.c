#include "device.h"

#include "ln_with.h"
#include "requests.h"

#ifdef LN_WITH_F32
enum { FLOATS = 1 };
#else
enum { FLOATS = 0 }; /* the model has none: a chip without a unit for them need not hold what stands in for it */
#endif

typedef struct device {
    ln_device_memory memory;
    ln_model model;
    ln_frame frame;
    ln_status status;       /* of opening the model */
    const uint8_t *bin;     /* the model in use */
    uint32_t session;       /* number of the conversation, from HELLO */
    uint16_t last;          /* sequence of the newest request */
    int8_t slot;            /* the slot in use, or -1: the built-in model */
    int8_t load_slot;       /* where a new model is being written */
    uint32_t load_bytes, load_crc; /* the model that is being loaded */
} device;

static device d;

/* ---- numbers of a payload */

static uint16_t u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | (uint16_t)p[1] << 8);
}

static uint32_t u32(const uint8_t *p)
{
    return u16(p) | (uint32_t)u16(p + 2) << 16;
}

static uint8_t *put(uint8_t *p, uint32_t value, int bytes) /* returns what follows */
{
    for (; bytes; bytes--, value >>= 8) *p++ = (uint8_t)value;
    return p;
}

static uint8_t *put_float(uint8_t *p, float value)
{
    union {
        float value;
        uint32_t bits;
    } v;
    v.value = value;
    return put(p, v.bits, 4);
}

static uint8_t *put_text(uint8_t *p, const char *text)
{
    uint8_t *count = p++;
    while (*text && p - count <= 40) *p++ = (uint8_t)*text++;
    *count = (uint8_t)(p - count - 1);
    return p;
}

/* ---- the model */

static uint32_t tensor_bytes(uint32_t index)
{
    ln_tensor t;
    ln_get_tensor(&d.model, index, &t);
    return t.bytes;
}

static uint32_t output_bytes(void)
{
    return (uint32_t)ln_output_bytes(&d.model);
}

static int fits(void)
{
    return ln_arena_bytes(&d.model) <= d.memory.arena_bytes && tensor_bytes(0) <= d.memory.input_bytes
        && output_bytes() <= d.memory.output_bytes;
}

static void open_model(const uint8_t *bin, uint32_t bytes)
{
    d.bin = bin;
    d.status = ln_open(&d.model, bin, bytes);
}

static ln_status run(ln_after_op after, void *user)
{
    if (d.status != LN_OK) return d.status;
    return ln_run_each(&d.model, d.memory.arena, d.memory.arena_bytes, d.memory.input, d.memory.output, after, user);
}

/* ---- loaded models. A slot: "LNS1", bytes, CRC-32 of them, generation; 16 bytes on "KEEP" or 0xFF; the model at 64 */

enum { SLOT_KEEP = 16, SLOT_MODEL = 64 };
static const uint8_t SLOT_MAGIC[4] = {'L', 'N', 'S', '1'}, KEEP_MAGIC[4] = {'K', 'E', 'E', 'P'};

static int same4(const uint8_t *a, const uint8_t *b)
{
    return u32(a) == u32(b);
}

static uint32_t slot_generation(int slot) /* 0: no whole model lies there */
{
    const uint8_t *s = board_slot(slot);
    if (!same4(s, SLOT_MAGIC) || u32(s + 4) > board_slot_bytes - SLOT_MODEL) return 0;
    return ln_crc32(0, s + SLOT_MODEL, u32(s + 4)) == u32(s + 8) ? u32(s + 12) : 0;
}

static uint32_t kept_generation(int slot)
{
    return same4(board_slot(slot) + SLOT_KEEP, KEEP_MAGIC) ? slot_generation(slot) : 0;
}

static void use_slot(int slot) /* -1: the built-in model */
{
    d.slot = (int8_t)slot;
    if (slot < 0) open_model(d.memory.model, d.memory.model_bytes);
    else open_model(board_slot(slot) + SLOT_MODEL, u32(board_slot(slot) + 4));
}

static void use_newest(void)
{
    if (board_slot_bytes > SLOT_MODEL) {
        const uint32_t a = kept_generation(0), b = kept_generation(1);
        if (a || b) {
            use_slot(b > a);
            if (d.status == LN_OK && fits()) return;
        }
    }
    use_slot(-1);
}

/* ---- answers. Each is given the payload, and writes its own over it; returns its end */

static uint8_t *ok(uint8_t *p) /* the payload has been read */
{
    p[0] = ANSWER_OK;
    return p + 1;
}

static uint8_t *fail(uint8_t *p, int why)
{
    p[0] = (uint8_t)why;
    return p + 1;
}

static uint8_t *fail_status(uint8_t *p, ln_status status)
{
    p[0] = ANSWER_RUNTIME;
    p[1] = (uint8_t)status;
    return p + 2;
}

static uint8_t *info(uint8_t *p)
{
    const int open = d.status == LN_OK;
    uint8_t *q = put(ok(p), (uint32_t)d.status, 1);
    q = put(q, open ? ln_crc32(0, d.bin + 128, d.model.program_at + d.model.program_bytes - 128) : 0, 4);
    q = put(q, open ? d.model.len : 0, 4);
    q = put(q, open ? tensor_bytes(0) : 0, 4);
    q = put(q, open ? output_bytes() : 0, 4);
    q = put(q, open ? d.model.op_count : 0, 2);
    q = put(q, open ? (uint32_t)ln_arena_bytes(&d.model) : 0, 4);
    q = put(q, board_tick_hertz, 4);
    q = put(q, board_slot_bytes > SLOT_MODEL ? board_slot_bytes - SLOT_MODEL : 0, 4);
    q = put(q, (uint32_t)(d.slot + 1), 1);
    q = put_text(q, LN_VERSION);
    return put_text(q, board_name);
}

static uint8_t *write_input(uint8_t *p, uint16_t length)
{
    if (length < 4) return fail(p, ANSWER_LENGTH);
    const uint32_t at = u32(p), n = length - 4u;
    if (at > d.memory.input_bytes || n > d.memory.input_bytes - at) return fail(p, ANSWER_RANGE);
    for (uint32_t i = 0; i < n; i++) d.memory.input[at + i] = p[4 + i];
    return ok(p);
}

/* Random values that a PC can make too: xorshift32, of which float32 takes the upper 24 bits, to -2 <= x < 2. */
static uint8_t *fill_input(uint8_t *p, uint16_t length)
{
    if (length != 4 || u32(p) == 0) return fail(p, ANSWER_LENGTH);
    if (d.status != LN_OK) return fail_status(p, d.status);
    uint32_t r = u32(p);
    ln_tensor t;
    ln_get_tensor(&d.model, 0, &t);
    for (uint32_t i = 0; i < t.elements; i++) {
        r ^= r << 13;
        r ^= r >> 17;
        r ^= r << 5;
        if (FLOATS && t.dtype == LN_F32)
            put_float(d.memory.input + 4 * i, (float)((int32_t)(r >> 8) - 0x800000) * 2.384185791015625e-7f);
        else d.memory.input[i] = (uint8_t)(r >> 24);
    }
    return ok(p);
}

static uint8_t *run_once(uint8_t *p, uint16_t length)
{
    if (length != 4) return fail(p, ANSWER_LENGTH);
    if (d.status != LN_OK) return fail_status(p, d.status);
    if (ln_crc32(0, d.memory.input, tensor_bytes(0)) != u32(p)) return fail(p, ANSWER_INPUT);
    const ln_status given = ln_check_input(&d.model, d.memory.input);
    if (given != LN_OK) return fail_status(p, given);
    const uint32_t began = board_ticks();
    const ln_status s = run(NULL, NULL);
    const uint32_t ticks = board_ticks() - began;
    if (s != LN_OK) return fail_status(p, s);
    return put(put(ok(p), ticks, 4), ln_crc32(0, d.memory.output, output_bytes()), 4);
}

static uint8_t *read_output(uint8_t *p, uint16_t length)
{
    if (length != 6) return fail(p, ANSWER_LENGTH);
    const uint32_t at = u32(p), n = u16(p + 4);
    if (at > d.memory.output_bytes || n > d.memory.output_bytes - at || n > LN_FRAME_PAYLOAD - 1)
        return fail(p, ANSWER_RANGE);
    for (uint32_t i = 0; i < n; i++) p[1 + i] = d.memory.output[at + i];
    return ok(p) + n;
}

typedef struct each_operator {
    uint16_t first;
    uint8_t *to, *end; /* of the answer */
} each_operator;

/* CRC-32 of what the operator gave; for float32 also the mean of |y|, and of y under signs that depend on the place. */
static int note_operator(void *user, uint32_t index, const ln_op *op, const ln_tensor *output, const void *data)
{
    const float *y = data;
    each_operator *e = user;
    float size = 0.0f, sign = 0.0f;

    (void)op;
    if (index < e->first) return 0;
    if (e->end - e->to < 12) return 1;
    if (FLOATS && output->dtype == LN_F32) {
        for (uint32_t i = 0; i < output->elements; i++) {
            size += y[i] < 0.0f ? -y[i] : y[i];
            sign += i * 2654435761u < 0x80000000u ? y[i] : -y[i];
        }
        size /= (float)output->elements;
        sign /= (float)output->elements;
    }
    e->to = put(e->to, ln_crc32(0, data, output->bytes), 4);
    e->to = put_float(put_float(e->to, size), sign);
    return 0;
}

static uint8_t *operators(uint8_t *p, uint16_t length)
{
    if (length != 2) return fail(p, ANSWER_LENGTH);
    each_operator e = {u16(p), p + 1, p + LN_FRAME_PAYLOAD}; /* the answer stands over the request, which has been read */
    const ln_status s = run(note_operator, &e);
    if (s != LN_OK && s != LN_STOPPED) return fail_status(p, s);
    ok(p);
    return e.to;
}

/* How far into the arena a run writes: it is filled, and what changed is looked for, with two patterns, as a value
 * may happen to be one of them. */
static uint8_t *memory(uint8_t *p)
{
    uint32_t touched = 0, used, size;

    for (uint8_t pattern = 0xA5;; pattern = 0x5A) {
        for (uint32_t i = 0; i < d.memory.arena_bytes; i++) d.memory.arena[i] = pattern;
        const ln_status s = run(NULL, NULL);
        if (s != LN_OK) return fail_status(p, s);
        uint32_t end = d.memory.arena_bytes;
        while (end > touched && d.memory.arena[end - 1] == pattern) end--;
        touched = end;
        if (pattern == 0x5A) break;
    }
    board_stack(&used, &size);
    return put(put(put(ok(p), touched, 4), used, 4), size, 4);
}

static uint8_t *bench(uint8_t *p, uint16_t length)
{
    if (length != 2) return fail(p, ANSWER_LENGTH);
    const uint32_t began = board_ticks();
    for (uint16_t n = u16(p); n; n--) {
        const ln_status s = run(NULL, NULL);
        if (s != LN_OK) return fail_status(p, s);
    }
    return put(ok(p), board_ticks() - began, 4);
}

/* ---- a new model */

/* Where the bytes stand already, as when a request came twice, nothing is written: flash takes each byte once. */
static int write_slot(int slot, uint32_t at, const uint8_t *data, uint16_t n)
{
    const uint8_t *there = board_slot(slot) + at;
    uint16_t equal = 0;
    while (equal < n && there[equal] == data[equal]) equal++;
    return equal == n ? 0 : board_slot_write(slot, at, data, n);
}

static uint8_t *load(uint8_t *p, uint16_t length)
{
    if (length != 8) return fail(p, ANSWER_LENGTH);
    if (board_slot_bytes <= SLOT_MODEL) return fail(p, ANSWER_NO_SLOT);
    if (u32(p) > board_slot_bytes - SLOT_MODEL) return fail(p, ANSWER_RANGE);
    if (d.slot >= 0 && kept_generation(d.slot) == 0) use_newest(); /* one that was tried and not kept */
    d.load_slot = (int8_t)(d.slot == 0);
    d.load_bytes = u32(p);
    d.load_crc = u32(p + 4);
    return board_slot_erase(d.load_slot) ? fail(p, ANSWER_FLASH) : ok(p);
}

static uint8_t *part(uint8_t *p, uint16_t length)
{
    if (length < 4) return fail(p, ANSWER_LENGTH);
    const uint32_t at = u32(p), n = length - 4u;
    if (at > d.load_bytes || n > d.load_bytes - at) return fail(p, ANSWER_RANGE);
    return write_slot(d.load_slot, SLOT_MODEL + at, p + 4, (uint16_t)n) ? fail(p, ANSWER_FLASH) : ok(p);
}

static uint8_t *try_it(uint8_t *p)
{
    const int slot = d.load_slot, old = d.slot;
    uint8_t head[16];
    if (d.load_bytes == 0) return fail(p, ANSWER_NO_SLOT);
    if (slot == old) return ok(p); /* asked twice */
    if (ln_crc32(0, board_slot(slot) + SLOT_MODEL, d.load_bytes) != d.load_crc) return fail(p, ANSWER_CHECKSUM);
    for (int i = 0; i < 4; i++) head[i] = SLOT_MAGIC[i];
    put(put(put(head + 4, d.load_bytes, 4), d.load_crc, 4), old < 0 ? 1 : slot_generation(old) + 1, 4);
    if (write_slot(slot, 0, head, sizeof head)) return fail(p, ANSWER_FLASH);

    use_slot(slot);
    const ln_status s = d.status;
    if (s == LN_OK && fits()) return ok(p);
    const uint32_t arena = (uint32_t)ln_arena_bytes(&d.model);
    const uint32_t input = s == LN_OK ? tensor_bytes(0) : 0, output = s == LN_OK ? output_bytes() : 0;
    use_slot(old); /* the old one goes on */
    if (s != LN_OK) return fail_status(p, s);
    return put(put(put(fail(p, ANSWER_TOO_LARGE), arena, 4), input, 4), output, 4);
}

static uint8_t *keep(uint8_t *p, uint16_t length) /* 1: from now on, also after a reset; 0: back to the one before */
{
    if (length != 1) return fail(p, ANSWER_LENGTH);
    if (p[0] == 0) use_newest();
    else if (d.slot < 0) return fail(p, ANSWER_NO_SLOT);
    else if (write_slot(d.slot, SLOT_KEEP, KEEP_MAGIC, 4)) return fail(p, ANSWER_FLASH);
    return ok(p);
}

/* ---- requests */

static uint8_t *answer(uint8_t type, uint8_t *p, uint16_t length)
{
    switch (type) {
    case REQUEST_HELLO: return put(ok(p), LN_FRAME_PAYLOAD, 2);
    case REQUEST_INFO: return info(p);
    case REQUEST_WRITE: return write_input(p, length);
    case REQUEST_FILL: return fill_input(p, length);
    case REQUEST_RUN: return run_once(p, length);
    case REQUEST_READ: return read_output(p, length);
    case REQUEST_OPERATORS: return operators(p, length);
    case REQUEST_MEMORY: return memory(p);
    case REQUEST_BENCH: return bench(p, length);
    case REQUEST_LOAD: return load(p, length);
    case REQUEST_PART: return part(p, length);
    case REQUEST_TRY: return try_it(p);
    case REQUEST_KEEP: return keep(p, length);
    }
    return fail(p, ANSWER_UNKNOWN);
}

static void take_request(void)
{
    uint8_t *p = ln_frame_payload(&d.frame), *end;
    const uint8_t version = d.frame.bytes[0], type = d.frame.bytes[1];
    const uint16_t sequence = u16(d.frame.bytes + 2), length = u16(d.frame.bytes + 4);

    if (type & 0x80) return; /* an answer: our own, come back */
    if (version != LN_FRAME_VERSION) {
        end = fail(p, ANSWER_VERSION);
    } else {
        if (type == REQUEST_HELLO && length == 4 && u32(p) != d.session) {
            d.session = u32(p); /* a new conversation; a late copy of an old HELLO has this number already */
            d.last = sequence;
        }
        if ((uint16_t)(sequence - d.last) & 0x8000u) return; /* a late copy of a request that was answered */
        d.last = sequence;
        end = answer(type, p, length);
    }
    ln_frame_send(&d.frame, type | 0x80, sequence, (uint16_t)(end - p), board_write);
}

void ln_device_start(const ln_device_memory *memory_lent)
{
    d.memory = *memory_lent;
    use_newest();
}

void ln_device_poll(void)
{
    for (int byte; (byte = board_read()) >= 0;)
        if (ln_frame_read(&d.frame, (uint8_t)byte)) take_request();
}
