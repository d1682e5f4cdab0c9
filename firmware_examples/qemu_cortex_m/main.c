#include "model_in.h"

void board_start(void);

int main(void)
{
    board_start();
    ln_device_start(&THE_MODEL);
    for (;;) ln_device_poll();
}
