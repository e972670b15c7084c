# Every target sets up what it needs in .venv and build/, from a bare checkout on.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SOURCES := $(shell find cmake core bindings src -type f -not -path '*/__pycache__/*') CMakeLists.txt pyproject.toml
CXX_FILES := $(shell find core bindings tools tests -name '*.cpp' -o -name '*.h')

# The frameworks that the bench compares live in environments of their own, here below .venv.
export TAPEGRAD_CACHE := $(CURDIR)/$(VENV)/frameworks
TAPEGRAD := $(BIN)/tapegrad
# What the bench runs on: the whole package if it is there, else only what this machine needs of it,
# which is built in half the time.
RUNNING := $(VENV)/$(if $(wildcard $(VENV)/.installed),.installed,.native)
# Tests that measure run one at a time; what fails in a disturbed moment is tried twice more.
MEASURING = $(BIN)/python -m pytest --reruns 2 --reruns-delay 5
EXTRAS := ".[bench,distributed,postgres,weights]"

.PHONY: bench frameworks test test-frameworks lint format accuracy sanitize sanitize-quick wheel \
	docs clean

bench: $(RUNNING)  ## scalar graphs and operators: checked tables, and a picture in build/bench
	$(TAPEGRAD) bench frameworks install torch jax
	mkdir -p build/bench
	$(TAPEGRAD) bench run overview --memory --store build/bench/results.sqlite \
		--chart build/bench/overview.png

frameworks: $(VENV)/.installed  ## PyTorch and JAX, for the bench and its tests
	$(TAPEGRAD) bench frameworks install torch jax

test: frameworks  ## all tests but those of TensorFlow and MXNet
	$(BIN)/python -m pytest -n auto --ignore=tests/frameworks --ignore=tests/bench
	$(MEASURING) tests/bench

test-frameworks: frameworks  ## TensorFlow and MXNet in the bench
	$(TAPEGRAD) bench frameworks install tensorflow mxnet
	$(MEASURING) tests/frameworks

lint: $(VENV)/.installed  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)
	$(BIN)/mypy -p tapegrad
	$(BIN)/mypy tests

format: $(VENV)/.tools
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

accuracy: $(VENV)/.tools  ## errors of all functions, on every instruction set, against their bounds
	$(BIN)/python tools/ulp.py --samples 20000

docs: $(VENV)/.installed  ## pages that are written by programs
	$(BIN)/python -m tapegrad.opsdoc > docs/ops.md
	$(BIN)/python -m tapegrad.apidoc > docs/api.md

# The core under AddressSanitizer and UndefinedBehaviorSanitizer, in build/ and not in .venv.
SANITIZED := build/sanitized
SANITIZE = LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=8:allocator_may_return_null=1 \
	PYTHONMALLOC=malloc $(BIN)/python -m pytest -n auto -p no:cacheprovider
SANITIZED_INSTALL = $(PIP) install --no-build-isolation --no-deps \
	-Ccmake.define.TAPEGRAD_SANITIZE=ON -Cinstall.strip=false

sanitize: $(SANITIZED)/all/.installed  ## all tests but those that build packages, under sanitizers
	PYTHONPATH=$(SANITIZED)/all $(SANITIZE) -m "not slow" \
		--ignore=tests/bench --ignore=tests/frameworks

sanitize-quick: $(SANITIZED)/baseline/.installed  ## a subset of about two minutes, one instruction set
	PYTHONPATH=$(SANITIZED)/baseline $(SANITIZE) -m "not slow" tests/core/test_lanes.py \
		$(addprefix tests/scalar/test_, graph.py program.py misuse.py minimize.py descent.py shared.py transforms.py files.py)

$(SANITIZED)/all/.installed: $(VENV)/.tools $(SOURCES)
	rm -rf $(@D)
	$(SANITIZED_INSTALL) -Cbuild-dir=build/sanitize-all --target $(@D) .
	touch $@

$(SANITIZED)/baseline/.installed: $(VENV)/.tools $(SOURCES)
	rm -rf $(@D)
	$(SANITIZED_INSTALL) -Cbuild-dir=build/sanitize-baseline \
		-Ccmake.define.TAPEGRAD_ISAS=baseline --target $(@D) .
	touch $@

wheel: $(VENV)/.tools $(SOURCES)  ## a wheel with all it needs but NumPy, in dist/
	$(PIP) install --group wheel
	rm -rf dist build/wheel
	$(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps -w build/wheel .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair -w dist build/wheel/*.whl

$(VENV)/.installed: $(VENV)/.tools $(SOURCES)
	@echo "building tapegrad"
	$(PIP) install --no-build-isolation $(EXTRAS)
	touch $@

$(VENV)/.native: $(VENV)/.builder $(SOURCES)
	@echo "building tapegrad for this machine"
	$(PIP) install --no-build-isolation -Cbuild-dir=build/native -Ccmake.define.TAPEGRAD_ISAS=native \
		$(EXTRAS)
	touch $@

$(VENV)/.tools: $(VENV)/.builder
	$(PIP) install --group test --group lint
	touch $@

$(VENV)/.builder: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install "pip>=25.1"
	$(PIP) install --group build
	touch $@

clean:
	rm -rf build dist $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
