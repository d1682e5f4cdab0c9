# LiteNet. `make help` lists the targets; `make demo` and `make test` install what they need.
#
# Everything runs in the active virtual environment, or else in .venv, which is made when it is missing.

BOOT ?= python3
VENV := $(or $(VIRTUAL_ENV),.venv)
PYTHON := $(VENV)/bin/python
PIP = $(PYTHON) -m pip --quiet --disable-pip-version-check
TYPES := build/types
JOBS ?= 2

.PHONY: help install demo page lib install-c wheels wasm npm gen test test-all check lint fuzz coverage bench clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed 's/:.*## /\t/'

$(PYTHON):
	$(BOOT) -m venv $(VENV)

install: $(PYTHON) ## install LiteNet with what training and testing need, editable
	$(PIP) install -e '.[dev]'

demo: $(PYTHON) ## install, train on 1,797 real digits, export, and ask about pictures
	$(PIP) install '.[train]'
	PYTHON="$(abspath $(PYTHON))" sh examples/demo.sh
	@echo 'In a browser, drawn by hand: make page'

lib: ## the C runtime as a static and a shared library, in build/c
	$(MAKE) -C runtime_c BUILD=$(CURDIR)/build/c

install-c: ## the C runtime for C projects: make install-c PREFIX=/usr/local
	$(MAKE) -C runtime_c BUILD=$(CURDIR)/build/c PREFIX=$(abspath $(or $(PREFIX),/usr/local)) install

wheels: $(PYTHON) ## wheels for x86-64, AArch64, ARMv7 and ARMv6, in dist/
	$(PIP) install 'setuptools>=77' 'cffi>=1.16' ziglang
	$(PYTHON) pyruntime/build_wheels.py

wasm: ## the runtime for browsers, beside wasm/litenet.js; needs clang and wasm-ld
	$(MAKE) -C wasm BUILD=$(CURDIR)/build/wasm

npm: $(PYTHON) wasm ## the npm package for browsers and Node, as a folder: build/npm
	$(PYTHON) wasm/npm_package.py build/npm

page: $(PYTHON) wasm ## serve the demo page, with a model of the built-in digits, and print its address
	@test -e wasm/demo/digits.bin || { $(MAKE) demo && cp build/demo/digits.bin wasm/demo/; }
	$(PYTHON) wasm/demo/serve.py

gen: ## write again what is generated from the operators
	$(PYTHON) -m litenet.exporter.gen_ops
	$(PYTHON) -m litenet.trainer.reference docs/blueprint.md
	$(PYTHON) -m litenet.exporter.importers.reference docs/import.md

test: install check ## install, then lint, types and all fast tests, in JOBS processes
	$(PYTHON) -m pytest -n $(JOBS) --dist loadfile

test-all: install check ## the same with the tests that take minutes
	$(PYTHON) -m pytest -n $(JOBS) --dist loadfile --slow

check: lint ## lint and types
	@mkdir -p $(TYPES)/litenet && ln -sfn $(CURDIR)/trainer $(CURDIR)/exporter $(CURDIR)/pyruntime $(TYPES)/litenet
	cd $(TYPES) && $(abspath $(PYTHON)) -m mypy --config-file $(CURDIR)/pyproject.toml -p litenet

lint: ## ruff
	$(PYTHON) -m ruff check .

fuzz: install ## fuzz all that reads files: make fuzz TIME=600 (seconds); needs clang
	$(PIP) install atheris || echo 'without atheris the readers in Python are passed over'
	$(PYTHON) tests/fuzz.py --seconds $(or $(TIME),600) $(TARGETS)

coverage: install ## branches that the tests reach, of the C core (needs clang with llvm-cov) and of Python
	$(PYTHON) tests/branches.py c
	$(PYTHON) tests/branches.py python

bench: ## time a .bin on this machine: make bench MODEL=mnist_cnn.bin
	$(PYTHON) -m litenet.pyruntime $(MODEL) --bench

clean: ## remove what was built
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache pyruntime/_litenet.* .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
