#include "LiteNet.h"

extern "C" {
#include "model_in.h"
}

static Stream *stream;

extern "C" {
extern const char board_name[24];
extern const uint32_t board_tick_hertz, board_slot_bytes;
const char board_name[24] = "arduino";
const uint32_t board_tick_hertz = 1000000, board_slot_bytes = 0;

int board_read(void) { return stream->available() ? stream->read() : -1; }
void board_write(uint8_t byte) { stream->write(byte); }
uint32_t board_ticks(void) { return micros(); }
void board_stack(uint32_t *used, uint32_t *size) { *used = *size = 0; }
const uint8_t *board_slot(int) { return nullptr; }
int board_slot_erase(int) { return 1; }
int board_slot_write(int, uint32_t, const uint8_t *, uint16_t) { return 1; }
}

void litenet_begin(Stream &line) {
  stream = &line;
  ln_device_start(&THE_MODEL);
}

void litenet_poll() { ln_device_poll(); }
