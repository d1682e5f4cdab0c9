# LiteNet. `make help` lists the targets; `make demo` and `make test` install what they need.
#
# Everything runs in the active virtual environment, or else in .venv, which is made when it is missing.

BOOT ?= python3
VENV := $(or $(VIRTUAL_ENV),.venv)
PYTHON := $(VENV)/bin/python
PIP = $(PYTHON) -m pip --quiet --disable-pip-version-check
TYPES := build/types
CFLAGS ?= -O2
C_FLAGS = -std=c99 -ffp-contract=off -Iruntime_c/include
OBJECTS = $(patsubst runtime_c/src/%.c,build/c/%.o,$(wildcard runtime_c/src/*.c))

.PHONY: help install demo lib wasm page gen test test-all check lint bench clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/'

$(PYTHON):
	$(BOOT) -m venv $(VENV)

install: $(PYTHON) ## install LiteNet with what training and testing need, editable
	$(PIP) install -e '.[dev]'

demo: $(PYTHON) ## install, train on 1,797 real digits, export, and ask about pictures
	$(PIP) install '.[train]'
	PYTHON="$(abspath $(PYTHON))" sh examples/demo.sh

lib: build/liblitenet.a ## the C runtime as a static library

build/liblitenet.a: $(OBJECTS)
	$(AR) rcs $@ $^

build/c/%.o: runtime_c/src/%.c $(wildcard runtime_c/src/*.h runtime_c/src/*.def runtime_c/include/*.h)
	@mkdir -p build/c
	$(CC) $(CFLAGS) $(C_FLAGS) -c $< -o $@

# The runtime for browsers: no library, no threads, no files. The kernels are compiled for speed, the rest for size.
CLANG ?= clang
WASM_LD ?= $(or $(shell command -v wasm-ld wasm-ld-14 wasm-ld-19 | head -1),wasm-ld)
WASM_FLAGS = --target=wasm32 -std=c99 -ffp-contract=off -ffreestanding -fvisibility=hidden -Iruntime_c/include \
	-Iruntime_c/src
WASM_LINK = --no-entry --export-dynamic --gc-sections --strip-all -z stack-size=65536
WASM_NAMES = litenet_web $(filter-out ln_file ln_threads fast_sse2 fast_avx2 fast_avx512 fast_neon, \
	$(basename $(notdir $(wildcard runtime_c/src/*.c))))
WASM_HEADERS = $(wildcard runtime_c/src/*.h runtime_c/src/*.def runtime_c/include/*.h)

wasm: wasm/litenet.wasm wasm/litenet-simd.wasm ## the runtime for browsers, beside wasm/litenet.js

wasm/litenet.wasm: $(WASM_NAMES:%=build/wasm/plain/%.o)
wasm/litenet-simd.wasm: $(WASM_NAMES:%=build/wasm/simd/%.o)
wasm/%.wasm:
	$(WASM_LD) $(WASM_LINK) -o $@ $^

page: $(PYTHON) wasm ## serve the demo page, with a model of the built-in digits, and print its address
	@test -e wasm/demo/digits.bin || { $(MAKE) demo && cp build/demo/digits.bin wasm/demo/; }
	$(PYTHON) wasm/demo/serve.py

vpath %.c runtime_c/src wasm
build/wasm/plain/%.o: %.c $(WASM_HEADERS)
	@mkdir -p $(@D)
	$(CLANG) $(WASM_FLAGS) $(if $(filter ln_panels op_%,$*),-O2,-Oz) -c $< -o $@
build/wasm/simd/%.o: %.c $(WASM_HEADERS)
	@mkdir -p $(@D)
	$(CLANG) $(WASM_FLAGS) -msimd128 $(if $(filter fast_wasm,$*),-O2,-Oz) -c $< -o $@

gen: ## write again what is generated from the operators
	$(PYTHON) -m litenet.exporter.gen_ops
	$(PYTHON) -m litenet.trainer.reference docs/blueprint.md
	$(PYTHON) -m litenet.exporter.importers.reference docs/import.md

test: install check ## install, then lint, types and all fast tests
	$(PYTHON) -m pytest

test-all: install check ## the same with the tests that take minutes
	$(PYTHON) -m pytest --slow

check: lint ## lint and types
	@mkdir -p $(TYPES)/litenet && ln -sfn $(CURDIR)/trainer $(CURDIR)/exporter $(CURDIR)/pyruntime $(TYPES)/litenet
	cd $(TYPES) && $(abspath $(PYTHON)) -m mypy --config-file $(CURDIR)/pyproject.toml -p litenet

lint: ## ruff
	$(PYTHON) -m ruff check .

bench: ## time a .bin on this machine: make bench MODEL=mnist_cnn.bin
	$(PYTHON) -m litenet.pyruntime $(MODEL) --bench

clean: ## remove what was built
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache pyruntime/_litenet.* .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
