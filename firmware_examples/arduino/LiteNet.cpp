#include "LiteNet.h"

extern "C" {
#include "model_in.h"
}

static Stream *stream;

extern "C" {
extern const char board_name[24];
const char board_name[24] = "arduino";
extern const uint32_t board_tick_hertz;
const uint32_t board_tick_hertz = 1000000;

int board_read(void) { return stream->available() ? stream->read() : -1; }
void board_write(uint8_t byte) { stream->write(byte); }
uint32_t board_ticks(void) { return micros(); }
}

void litenet_begin(Stream &line) {
  stream = &line;
  ln_device_start(&THE_MODEL);
}

void litenet_poll() { ln_device_poll(); }
