# Every target sets up what it needs in .venv and build/, from a bare checkout on.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
GROUPS := --group build --group test --group lint --group bench
SOURCES := $(shell find core bindings src -type f -not -path '*/__pycache__/*') CMakeLists.txt pyproject.toml
CXX_FILES := $(shell find core bindings tools -name '*.cpp' -o -name '*.h')

.PHONY: bench test lint format sanitize sanitize-quick wheel docs clean

bench: $(VENV)/.installed  ## the benchmark: tables, raw samples and a picture in build/bench
	$(BIN)/python -m benchmarks.scalar

test: $(VENV)/.installed  ## all tests
	$(BIN)/python -m pytest

lint: $(VENV)/.installed  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)
	$(BIN)/mypy -p tapegrad
	$(BIN)/mypy tests benchmarks

format: $(VENV)/.tools
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

docs: $(VENV)/.installed  ## pages that are written by programs
	$(BIN)/python -m tapegrad.opsdoc > docs/ops.md

# The core under AddressSanitizer and UndefinedBehaviorSanitizer, in an environment of its own.
SANITIZED := build/sanitized
SANITIZE = LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=$(SANITIZED) \
	$(BIN)/python -m pytest -p no:cacheprovider

sanitize: $(SANITIZED)/.installed  ## all tests but those that build packages, under sanitizers
	$(SANITIZE) -m "not slow"

sanitize-quick: $(SANITIZED)/.installed  ## a subset of about two minutes
	$(SANITIZE) -m "not slow" tests/scalar/test_graph.py tests/scalar/test_program.py \
		tests/scalar/test_minimize.py tests/scalar/test_transforms.py

$(SANITIZED)/.installed: $(VENV)/.tools $(SOURCES)
	rm -rf $(SANITIZED)
	$(PIP) install --no-build-isolation --no-deps --target $(SANITIZED) \
		-Ccmake.define.TAPEGRAD_SANITIZE=ON -Cbuild-dir=build/sanitize-objects -Cinstall.strip=false .
	touch $@

wheel: $(VENV)/.tools $(SOURCES)  ## a wheel with all it needs but NumPy, in dist/
	$(PIP) install --group wheel
	rm -rf dist build/wheel
	$(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps -w build/wheel .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair -w dist build/wheel/*.whl

$(VENV)/.installed: $(VENV)/.tools $(SOURCES)
	@echo "building tapegrad"
	$(PIP) install --no-build-isolation --no-deps .
	touch $@

$(VENV)/.tools: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install "pip>=25.1"
	$(PIP) install $(GROUPS)
	touch $@

clean:
	rm -rf build dist $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
