/* Mutations that know the layout of a .bin, for the fuzzers: a field gets another value, records are copied, swapped,
 * added and taken away, sections grow and shrink; then sizes, offsets and checksums are made true again, most of the
 * time, so that what lies behind them is reached. Of operators only the two are known here that lead into int8 and out of
 * it: a file of a newer minor version is mutated as well. */
#ifndef MUTATE_MODEL_H
#define MUTATE_MODEL_H

#include "attack.h"

enum { HEADER = 128, TENSOR = 32, OPERATOR = 64, MOST_OPERATORS = 64 };
enum { LEADS_IN = 24, LEADS_OUT = 25, NO_INPUT = 0xFFFF, FEATURE_INT8 = 2, ONE = 0x3F800000 }; /* ONE: 1.0f */

typedef struct dice {
    uint32_t state;
} dice;

static uint32_t throw_dice(dice *d, uint32_t sides)
{
    d->state = d->state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(d->state >> 4) * sides) >> 28);
}

static uint32_t get(const unsigned char *p, uint32_t bytes)
{
    uint32_t v = 0;

    for (uint32_t i = 0; i < bytes; i++) v |= (uint32_t)p[i] << 8 * i;
    return v;
}

static void put(unsigned char *p, uint32_t bytes, uint32_t v)
{
    for (uint32_t i = 0; i < bytes; i++) p[i] = (unsigned char)(v >> 8 * i);
}

/* A value at an edge of something, or near the one that is there. */
static uint32_t odd_value(dice *d, uint32_t was)
{
    static const uint32_t edges[] = {0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 63, 64, 65, 127, 128, 255, 256, 1023, 4095, 4096,
                                     4097, 65534, 65535, 65536, 0x3FFFFFFF, 0x40000000, 0x7FFFFFFF, 0x80000000,
                                     0xFFFFFFF0, 0xFFFFFFFE, 0xFFFFFFFF, 0x3F800000, 0x7F800000, 0x7FC00000, 1,
                                     0x00800000, 0xFF7FFFFF};

    switch (throw_dice(d, 8)) {
    case 0: return was + 1;
    case 1: return was - 1;
    case 2: return was * 2;
    case 3: return was / 2;
    case 4: return was ^ (1u << throw_dice(d, 32));
    case 5: return was + 16;
    default: return edges[throw_dice(d, sizeof edges / sizeof edges[0])];
    }
}

static size_t next_64(size_t at)
{
    return (at + 63) / 64 * 64;
}

/* The four sections, taken out of a file and put together again with true sizes and offsets. */
typedef struct sections {
    unsigned char header[HEADER], *body[4]; /* weights, program, metadata, golden */
    size_t size[4];
    uint32_t ops, tensors;
} sections;

/* 0: the header's sizes do not fit the file. */
static int take_apart(const unsigned char *b, size_t len, sections *s, unsigned char *room, size_t most)
{
    size_t used = 0;

    if (len < HEADER) return 0;
    memcpy(s->header, b, HEADER);
    for (uint32_t i = 0; i < 4; i++) {
        const size_t at = i == 0 ? HEADER : get(b + 56 + 8 * i, 4), n = get(b + (i == 0 ? 60 : 60 + 8 * i), 4);
        if (n && (at > len || n > len - at)) return 0;
        s->body[i] = room + used;
        s->size[i] = n;
        used += n + 4096;
        if (used > most) return 0;
        if (n) memcpy(s->body[i], b + at, n);
    }
    s->ops = get(b + 88, 2);
    s->tensors = get(b + 90, 2);
    return s->ops > 0 && s->tensors == s->ops + 1 && s->size[1] == (size_t)s->ops * OPERATOR + (size_t)s->tensors * TENSOR;
}

static size_t put_together(const sections *s, unsigned char *b, size_t most)
{
    size_t at = HEADER, end = HEADER;

    memcpy(b, s->header, HEADER);
    for (uint32_t i = 0; i < 4; i++) {
        const size_t n = s->size[i];
        if (n) at = next_64(end);
        if (n && (at > most || n > most - at)) return 0;
        if (n) {
            memset(b + end, 0, at - end);
            memcpy(b + at, s->body[i], n);
            end = at + n;
        }
        put(b + 60 + 8 * i, 4, (uint32_t)n);
        if (i) put(b + 56 + 8 * i, 4, n ? (uint32_t)at : 0);
    }
    put(b + 88, 2, s->ops);
    put(b + 90, 2, s->tensors);
    return end;
}

static unsigned char *tensor_at(sections *s, uint32_t i)
{
    return s->body[1] + (size_t)i * TENSOR;
}

static unsigned char *operator_at(sections *s, uint32_t i)
{
    return s->body[1] + (size_t)s->tensors * TENSOR + (size_t)i * OPERATOR;
}

static int is_int8(const unsigned char *tensor)
{
    return tensor[4] == LN_I8;
}

/* Turns a record into quantize or dequantize, whichever the tensor that it reads can take. */
static void cross(unsigned char *op, const unsigned char *from)
{
    const uint32_t id = is_int8(from) ? LEADS_OUT : LEADS_IN;

    memset(op, 0, OPERATOR);
    put(op, 2, id);
    for (uint32_t k = 1; k < 4; k++) put(op + 4 + 2 * k, 2, NO_INPUT);
    op[14] = 1;
    if (id == LEADS_IN) put(op + 52, 2, 0x7F80); /* lo, hi */
}

/* One more operator behind the last, reading its output, with a tensor of its own. */
static void add_operator(sections *s, dice *d)
{
    unsigned char *ops = operator_at(s, 0), like[OPERATOR], tensor[TENSOR];
    const uint32_t last = get(operator_at(s, s->ops - 1) + 12, 2), model = throw_dice(d, s->ops);

    if (s->ops >= MOST_OPERATORS || last >= s->tensors) return;
    memcpy(like, operator_at(s, model), OPERATOR);
    if (throw_dice(d, 4) == 0) cross(like, tensor_at(s, last));
    memcpy(tensor, tensor_at(s, throw_dice(d, 2) ? last : throw_dice(d, s->tensors)), TENSOR);
    memmove(ops + TENSOR, ops, (size_t)s->ops * OPERATOR);
    memcpy(ops, tensor, TENSOR);
    s->tensors++;
    memcpy(operator_at(s, s->ops), like, OPERATOR);
    put(operator_at(s, s->ops) + 4, 2, last);
    put(operator_at(s, s->ops) + 12, 2, s->tensors - 1);
    put(tensor_at(s, s->tensors - 1) + 6, 1, 2);
    put(tensor_at(s, s->tensors - 1), 4, 0);
    put(tensor_at(s, last) + 6, 1, throw_dice(d, 2) ? 0 : 2);
    s->ops++;
    s->size[1] += OPERATOR + TENSOR;
    s->size[3] = 0; /* the golden section knows another program */
}

static void drop_operator(sections *s)
{
    unsigned char *ops = operator_at(s, 0);

    if (s->ops < 2) return;
    put(tensor_at(s, s->tensors - 2) + 6, 1, 2);
    put(tensor_at(s, s->tensors - 2), 4, 0);
    memmove(ops - TENSOR, ops, (size_t)(s->ops - 1) * OPERATOR);
    s->tensors--;
    s->ops--;
    s->size[1] -= OPERATOR + TENSOR;
    s->size[3] = 0;
}

/* An element type with a scale and zero point that are allowed. */
static void set_type(unsigned char *tensor, uint32_t type)
{
    if (tensor[4] == type) return;
    tensor[4] = (unsigned char)type;
    tensor[7] = 0;
    put(tensor + 24, 4, ONE);
}

/* From the input's type on, an operator gives what it is given; what leads into int8, or out of it, the other. Where an
 * operator keeps scale and zero point, which is not known here, they are at times those of what it reads. */
static void make_types_true(sections *s, int same)
{
    uint32_t any = 0;

    for (uint32_t k = 0; k < s->ops; k++) {
        unsigned char *op = operator_at(s, k);
        const uint32_t in = get(op + 4, 2), out = get(op + 12, 2), id = get(op, 2);
        if (in >= s->tensors || out >= s->tensors) continue;
        const unsigned char *x = tensor_at(s, in);
        unsigned char *y = tensor_at(s, out);
        set_type(y, id == LEADS_IN ? LN_I8 : id == LEADS_OUT ? LN_F32 : x[4]);
        if (same && is_int8(x) && is_int8(y)) {
            y[7] = x[7];
            memcpy(y + 24, x + 24, 4);
        }
        if (get(op + 20, 4) && is_int8(y)) op[15] = LN_I8;
        if (is_int8(y) && get(op + 52, 2) == 0) put(op + 52, 2, 0x7F80);
        if (!is_int8(y) && op[15] == LN_I8) op[15] = LN_F32;
    }
    for (uint32_t i = 0; i < s->tensors; i++) any |= is_int8(tensor_at(s, i)) != 0;
    if (any) put(s->header + 20, 4, get(s->header + 20, 4) | FEATURE_INT8);
}

/* Lives as the operators use the tensors, and a place in the arena for each that overlaps no other. */
static void make_lives_true(sections *s, int places)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < s->tensors; i++) {
        unsigned char *t = tensor_at(s, i);
        uint32_t elements = 1, first = 0, last = 0;
        for (uint32_t k = 0; k < s->ops; k++) {
            if (get(operator_at(s, k) + 12, 2) == i) first = k;
            for (uint32_t x = 0; x < 4; x++)
                if (get(operator_at(s, k) + 4 + 2 * x, 2) == i) last = k;
        }
        put(t + 28, 2, i == 0 ? 0 : first);
        put(t + 30, 2, t[6] == 2 ? s->ops - 1 : last);
        for (uint32_t k = 0; k < 4; k++)
            if (k < t[5]) elements *= get(t + 8 + 4 * k, 4);
        if (!places || t[6] || elements > LARGEST) continue;
        put(t, 4, at);
        at += (elements * (is_int8(t) ? 1 : 4) + 15) / 16 * 16;
    }
    if (places) put(s->header + 92, 4, at);
}

/* Bytes 24 to 59 of the header, which repeat two records. */
static void make_header_true(sections *s)
{
    uint32_t out = 0;

    while (out + 1 < s->tensors && tensor_at(s, out)[6] != 2) out++;
    for (uint32_t i = 0; i < 2; i++) {
        const unsigned char *t = tensor_at(s, i ? out : 0);
        s->header[24 + i] = t[4];
        s->header[26 + i] = t[5];
        memcpy(s->header + (i ? 44 : 28), t + 8, 16);
    }
}

static void mutate_once(sections *s, dice *d)
{
    static const unsigned char header[][2] = {{20, 4}, {24, 1}, {26, 1}, {28, 4}, {32, 4}, {36, 4}, {44, 4}, {92, 4}, {96, 1},
                                              {97, 1}, {98, 1}, {99, 1}, {100, 4}, {104, 4}, {112, 4}, {120, 4}, {124, 1}};
    static const unsigned char tensor[][2] = {{0, 4}, {4, 1}, {5, 1}, {6, 1}, {7, 1}, {8, 4}, {12, 4}, {16, 4}, {20, 4}, {24, 4},
                                              {28, 2}, {30, 2}};
    static const unsigned char op[][2] = {{0, 2}, {2, 1}, {3, 1}, {4, 2}, {6, 2}, {8, 2}, {12, 2}, {14, 1}, {15, 1}, {16, 4}, {20, 4},
                                          {24, 4}, {28, 4}, {52, 1}, {53, 1}, {54, 1}, {55, 1}, {56, 4}, {60, 4}};
    unsigned char *p, *q;
    uint32_t k, i;

    switch (throw_dice(d, 15)) {
    case 0: /* a field of the header */
        k = throw_dice(d, sizeof header / 2);
        p = s->header + header[k][0];
        put(p, header[k][1], odd_value(d, get(p, header[k][1])));
        break;
    case 1: case 2: /* of a tensor */
        k = throw_dice(d, sizeof tensor / 2);
        p = tensor_at(s, throw_dice(d, s->tensors)) + tensor[k][0];
        q = tensor_at(s, throw_dice(d, s->tensors)) + tensor[k][0];
        put(p, tensor[k][1], throw_dice(d, 3) ? odd_value(d, get(p, tensor[k][1])) : get(q, tensor[k][1]));
        break;
    case 3: case 4: /* of an operator */
        k = throw_dice(d, sizeof op / 2);
        p = operator_at(s, throw_dice(d, s->ops)) + op[k][0];
        q = operator_at(s, throw_dice(d, s->ops)) + op[k][0];
        put(p, op[k][1], throw_dice(d, 3) ? odd_value(d, get(p, op[k][1])) : get(q, op[k][1]));
        break;
    case 5: case 6: /* of an operator's attributes, of 1, 2 or 4 bytes */
        k = 1u << throw_dice(d, 3);
        p = operator_at(s, throw_dice(d, s->ops)) + 32 + throw_dice(d, throw_dice(d, 2) ? 12 : 32 - k);
        put(p, k, throw_dice(d, 3) ? odd_value(d, get(p, k)) : throw_dice(d, 9));
        break;
    case 7: /* one record over another */
        i = throw_dice(d, 2);
        p = i ? tensor_at(s, throw_dice(d, s->tensors)) : operator_at(s, throw_dice(d, s->ops));
        q = i ? tensor_at(s, throw_dice(d, s->tensors)) : operator_at(s, throw_dice(d, s->ops));
        memmove(p, q, i ? TENSOR : OPERATOR);
        break;
    case 8: add_operator(s, d); break;
    case 9: drop_operator(s); break;
    case 10: /* a section of another size; the new end is what was there or zeros */
        i = throw_dice(d, 3);
        i = i == 1 ? 3 : i;
        k = throw_dice(d, 2) ? 64 : 4;
        if (throw_dice(d, 2)) s->size[i] = s->size[i] > k ? s->size[i] - k : 0;
        else {
            memset(s->body[i] + s->size[i], 0, k);
            s->size[i] += k;
        }
        break;
    case 11: case 12: /* of an operator's weights: a multiplier, a bias, an entry of a table, a float or a half */
        p = operator_at(s, throw_dice(d, s->ops));
        i = get(p + 16, 4);
        k = 1u << throw_dice(d, 3);
        if (i < HEADER || get(p + 20, 4) < k || i - HEADER > s->size[0] || get(p + 20, 4) > s->size[0] - (i - HEADER)) break;
        p = s->body[0] + (i - HEADER) + throw_dice(d, get(p + 20, 4) / k) * k;
        put(p, k, odd_value(d, get(p, k)));
        break;
    case 13: /* the input's type; others follow it, most of the time (mutate_model) */
        p = tensor_at(s, 0);
        set_type(p, is_int8(p) ? LN_F32 : LN_I8);
        s->size[3] = 0;
        break;
    default: /* a byte of weights, metadata or golden values */
        i = throw_dice(d, 3);
        i = i == 1 ? 3 : i;
        if (s->size[i]) s->body[i][throw_dice(d, (uint32_t)s->size[i])] = (unsigned char)throw_dice(d, 256);
    }
}

/* One to eight mutations of the model in b[0..len), which has room for `most` bytes. The new length; 0: b is no model
 * that can be taken apart, and stays as it was. */
static size_t mutate_model(unsigned char *b, size_t len, size_t most, uint32_t seed)
{
    dice d = {seed};
    sections s;
    const size_t room_bytes = most + 4 * 4096 + 8 * 64;
    unsigned char *room = exactly(room_bytes);
    size_t n = 0;

    if (take_apart(b, len, &s, room, room_bytes)) {
        uint32_t rounds = 1u << throw_dice(&d, 4);
        while (rounds--) mutate_once(&s, &d);
        if (throw_dice(&d, 4)) make_types_true(&s, throw_dice(&d, 4) == 0);
        if (throw_dice(&d, 4)) make_lives_true(&s, throw_dice(&d, 2) == 0);
        if (throw_dice(&d, 8)) make_header_true(&s);
        n = put_together(&s, b, most);
        if (n && throw_dice(&d, 16)) repair(b, n);
    }
    free(room);
    return n;
}

#endif
