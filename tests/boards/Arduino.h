// What the Arduino library and sketches use of the core, by its documentation: to compile against, not to run.
#include <stddef.h>
#include <stdint.h>
struct Stream {
  int available();
  int read();
  size_t write(uint8_t);
  void begin(unsigned long);
  void println(int);
  void println(double, int);
};
extern Stream Serial;
unsigned long micros();
void delay(unsigned long);
