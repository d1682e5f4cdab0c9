/* A board that is a program on a PC: its serial line is a pseudo-terminal, its flash a piece of memory, or a file.
 *
 *     ./board [--flash FILE]        prints the name of the pseudo-terminal, for edge-serial */
#define _XOPEN_SOURCE 600

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "model_in.h"

const char board_name[] = "host_sim";
const uint32_t board_tick_hertz = 1000000;
enum { SLOT_BYTES = 1 << 20 };
const uint32_t board_slot_bytes = SLOT_BYTES;

static int line = -1;
static const char *flash_file;
static uint8_t slots[2][SLOT_BYTES] LN_ALIGNED_16;
static uint8_t sending[512], received[512];
static size_t to_send, have, taken;

static void flush(void)
{
    for (size_t at = 0; at < to_send;) {
        const ssize_t n = write(line, sending + at, to_send - at);
        if (n <= 0) break; /* nobody listens: lost, as on a wire */
        at += (size_t)n;
    }
    to_send = 0;
}

int board_read(void)
{
    if (taken == have) {
        flush();
        struct pollfd one = {line, POLLIN, 0};
        if (poll(&one, 1, 100) <= 0 || !(one.revents & POLLIN)) {
            if (one.revents & POLLHUP) poll(NULL, 0, 20); /* the other end is closed: wait for the next */
            return -1;
        }
        const ssize_t n = read(line, received, sizeof received);
        if (n <= 0) return -1;
        taken = 0;
        have = (size_t)n;
    }
    return received[taken++];
}

void board_write(uint8_t byte)
{
    if (to_send == sizeof sending) flush();
    sending[to_send++] = byte;
}

uint32_t board_ticks(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)(now.tv_sec * 1000000 + now.tv_nsec / 1000);
}

const uint8_t *board_slot(int slot)
{
    return slots[slot];
}

static int save(void)
{
    if (flash_file == NULL) return 0;
    FILE *file = fopen(flash_file, "wb");
    if (file == NULL) return 1;
    const size_t n = fwrite(slots, 1, sizeof slots, file);
    return fclose(file) != 0 || n != sizeof slots;
}

int board_slot_erase(int slot)
{
    memset(slots[slot], 0xFF, SLOT_BYTES);
    return save();
}

int board_slot_write(int slot, uint32_t at, const uint8_t *data, uint16_t n)
{
    for (uint16_t i = 0; i < n; i++) slots[slot][at + i] &= data[i]; /* as flash does */
    return at < 64 ? save() : 0; /* the head of a slot, after its model */
}

static int open_line(void)
{
    struct termios raw;
    line = posix_openpt(O_RDWR | O_NOCTTY);
    if (line < 0 || grantpt(line) || unlockpt(line)) return 1;
    const char *name = ptsname(line);
    if (name == NULL) return 1;
    const int keep = open(name, O_RDWR | O_NOCTTY); /* stays open, so that the line lives between two callers */
    if (keep < 0 || tcgetattr(keep, &raw)) return 1;
    raw.c_iflag = raw.c_oflag = raw.c_lflag = 0;
    raw.c_cflag = CS8 | CREAD | CLOCAL;
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(keep, TCSANOW, &raw)) return 1;
    puts(name);
    return fflush(stdout) != 0;
}

int main(int argc, char **argv)
{
    memset(slots, 0xFF, sizeof slots);
    if (argc == 3 && strcmp(argv[1], "--flash") == 0) {
        flash_file = argv[2];
        FILE *file = fopen(flash_file, "rb");
        if (file != NULL) {
            if (fread(slots, 1, sizeof slots, file) != sizeof slots) memset(slots, 0xFF, sizeof slots);
            fclose(file);
        }
    } else if (argc != 1) {
        fputs("usage: board [--flash FILE]\n", stderr);
        return 2;
    }
    if (open_line()) {
        perror("board: no pseudo-terminal");
        return 1;
    }
    ln_device_start(&THE_MODEL);
    for (;;) ln_device_poll();
}
