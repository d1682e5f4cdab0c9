# LiteNet. `make help` lists the targets. PYTHON and COMPILERS may be given: make test PYTHON=python3.12

PYTHON ?= python3
PIP = $(PYTHON) -m pip --quiet --disable-pip-version-check
TYPES = build/types

.PHONY: help install demo lib gen test test-all lint bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' $(MAKEFILE_LIST) | column -t -s:

install: ## install LiteNet with all that training and testing need, editable
	$(PIP) install -e '.[dev]'

demo: ## install what training needs, train on 1,797 real digits, export, and ask about a picture
	$(PIP) install '.[train]'
	sh examples/demo.sh

lib: ## the C runtime as a static library, build/liblitenet.a
	$(MAKE) -C runtime_c

gen: ## write again what is generated from the operators
	$(PYTHON) -m litenet.exporter.gen_ops

test: install ## lint, types and all fast tests
	$(MAKE) lint
	$(PYTHON) -m pytest

test-all: install ## the same with the long tests
	$(MAKE) lint
	$(PYTHON) -m pytest --slow

lint: ## ruff and mypy
	$(PYTHON) -m ruff check .
	@mkdir -p $(TYPES)/litenet && ln -sfn ../../../trainer $(TYPES)/litenet/trainer \
	  && ln -sfn ../../../exporter $(TYPES)/litenet/exporter && ln -sfn ../../../pyruntime $(TYPES)/litenet/pyruntime
	cd $(TYPES) && MYPYPATH=. $(PYTHON) -m mypy --config-file ../../pyproject.toml -p litenet

bench: ## time the runtime on this machine
	$(PYTHON) benchmarks/runtime.py

clean: ## remove what was built
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache pyruntime/_litenet*.so pyruntime/_litenet.c
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
