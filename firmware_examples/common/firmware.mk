# What the Makefiles here share. Of MODEL, a header of edge-export, it makes CORE (the runtime's sources), DEVICE (the
# device program's), HEADERS, and SWITCHES: warnings, include folders, and just the operators of that model.
COMMON := $(dir $(abspath $(lastword $(MAKEFILE_LIST))))
RUNTIME := $(abspath $(COMMON)../../runtime_c)
ifeq ($(MODEL),)
$(error MODEL= the header that edge-export wrote is missing)
endif

# float32 runs give the bits of every other machine only without fused multiply-adds
SWITCHES := -std=c99 -ffp-contract=off -Wall -Wextra -Werror -DLN_SMALL -DLN_TERSE -DLN_OPS_HEADER='"$(notdir $(MODEL))"' \
	-I$(RUNTIME)/include -I$(RUNTIME)/src -I$(COMMON) -I$(dir $(abspath $(MODEL)))
CORE := $(filter-out %/ln_file.c %/ln_threads.c $(RUNTIME)/src/fast_%,$(wildcard $(RUNTIME)/src/*.c))
DEVICE := $(COMMON)frame.c $(COMMON)device.c
HEADERS := $(wildcard $(RUNTIME)/src/*.h $(RUNTIME)/src/*.def $(RUNTIME)/include/*.h $(COMMON)*.h) $(MODEL)
