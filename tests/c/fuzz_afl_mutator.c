/* The mutations of mutate_model.h as a custom mutator of AFL++ (make fuzz). */
#include "mutate_model.h"

void *afl_custom_init(void *afl, unsigned seed);
void afl_custom_deinit(void *state);
size_t afl_custom_fuzz(void *state, unsigned char *data, size_t len, unsigned char **out, unsigned char *other,
                       size_t other_len, size_t most);

typedef struct mutator {
    dice d;
    unsigned char *block;
    size_t room;
} mutator;

void *afl_custom_init(void *afl, unsigned seed)
{
    mutator *state = exactly(sizeof *state);

    (void)afl;
    state->d.state = seed;
    state->block = NULL;
    state->room = 0;
    return state;
}

void afl_custom_deinit(void *state)
{
    free(((mutator *)state)->block);
    free(state);
}

size_t afl_custom_fuzz(void *state, unsigned char *data, size_t len, unsigned char **out, unsigned char *other,
                       size_t other_len, size_t most)
{
    mutator *m = state;

    (void)other;
    (void)other_len;
    if (m->room < most || m->room < len) {
        m->room = most > len ? most : len;
        free(m->block);
        m->block = exactly(m->room);
    }
    memcpy(m->block, data, len);
    *out = m->block;
    const size_t n = mutate_model(m->block, len, m->room, throw_dice(&m->d, 1u << 28));
    if (n) return n;
    if (len) m->block[throw_dice(&m->d, (uint32_t)len)] ^= (unsigned char)(1 + throw_dice(&m->d, 255));
    if (throw_dice(&m->d, 2)) repair(m->block, len);
    return len;
}
