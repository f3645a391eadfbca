# `make test` and `make demo` each work as the first command: they need a Python >= 3.11 and the package registry.
# Another Python:  make test PYTHON=python3.12

PYTHON ?= python3
PYTEST_ARGS ?= -q -n 2

VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := --constraint constraints.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq $(CONSTRAINTS)

.PHONY: help test test-latest test-processors laws demo parallel bench test-gpu bench-gpu compile-gpu has-gpu docs lint format types unit clean
.DELETE_ON_ERROR:

help:
	@echo "make test     lint, formatting, types and tests"
	@echo "make test-latest      the tests with the newest Python and jaxlib"
	@echo "make test-processors  the numeric tests with the instructions of three other x86-64 processors"
	@echo "make laws     the laws of transformations and JAX beside us, on many more examples than the tests take: an hour"
	@echo "make demo     train a classifier of handwritten digits, with checks and a picture"
	@echo "make parallel train a small GPT on eight devices that this machine pretends to have"
	@echo "make bench    ratios of tracefx to JAX"
	@echo "make test-gpu  what runs on an NVIDIA GPU is what the host computes"
	@echo "make bench-gpu ratios of tracefx to JAX on that GPU, into benchmarks/results"
	@echo "make compile-gpu  compile all for such a GPU, which need not be there: 40 minutes, and 3 GB to install"
	@echo "make docs     the documentation as a site, site/index.html"
	@echo "make format   rewrite the files as lint and formatter want them"
	@echo "make clean    remove the virtual environment and all caches"
	@echo "parts of make test: make lint, make types, make unit"

test:
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory unit

# Which Python, and where it comes from, the script says.
test-latest:
	@.ci/test-latest $(LATEST_ARGS)

test-processors: $(VENV)/.test
	$(BIN)/python -m tests.processors $(PROCESSORS_ARGS)

laws: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST_ARGS) tests/laws tests/differential tests/control/test_programs.py tests/control/test_custom_laws.py --hypothesis-profile=long

demo: $(VENV)/.demo
	$(BIN)/python -m demo.digits

parallel: $(VENV)/.demo
	$(BIN)/python -m demo.parallel

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

# A GPU is looked for before 3 GB are installed for it. Products of float32 are computed in float32, as the tolerances
# have it: by default GPUs since 2020 round the factors to 11 bits.
test-gpu: has-gpu $(VENV)/.gpu
	TRACEFX_PLATFORM=gpu JAX_PLATFORMS= NVIDIA_TF32_OVERRIDE=0 XLA_FLAGS=--xla_gpu_enable_triton_gemm=false \
	$(BIN)/python -m pytest -q tests/gpu

bench-gpu: has-gpu $(VENV)/.gpu
	$(BIN)/python -m benchmarks.gpu

# XLA compiles for a GPU that is described to it. What is missing for that, the command says.
compile-gpu: $(VENV)/.gpu
	$(BIN)/python -m tests.gpu.compiling

has-gpu:
	@command -v nvidia-smi >/dev/null && nvidia-smi --list-gpus | grep -q '^GPU' || { \
		echo "There is no NVIDIA GPU here: nvidia-smi, which comes with its driver, lists none. docs/gpus.md says what else there is."; \
		exit 1; }

# The variable turns off what the theme says of its successor.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "open site/index.html"

lint: $(VENV)/.test
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --quiet --check

types: $(VENV)/.test
	$(BIN)/mypy
	$(BIN)/python -m tests.page_modules build/pages
	$(BIN)/mypy --config-file tests/page_modules.ini build/pages
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

# Bytecode is cached even where the environment turns that off: tests start many processes.
unit: $(VENV)/.test $(VENV)/.browser
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(PYTEST_ARGS)

format: $(VENV)/.test
	$(BIN)/ruff check --quiet --fix
	$(BIN)/ruff format --quiet

clean:
	@! mountpoint -q build/debian/proc || umount build/debian/proc
	rm -rf $(VENV) .venv-latest .venv-oldest build dist out site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests demo benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps lie in the virtual environment, so they go when it goes; a changed pyproject.toml installs again.

$(VENV)/.test: pyproject.toml constraints.txt $(VENV)/.made
	@echo "installing tracefx and what its tests need"
	@$(PIP) --editable '.[test,demo,docs]'
	@touch $@

$(VENV)/.runtime: pyproject.toml constraints.txt $(VENV)/.made
	@echo "installing tracefx"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.demo: pyproject.toml constraints.txt $(VENV)/.made
	@echo "installing tracefx and what the demo needs"
	@$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/.bench: pyproject.toml constraints.txt $(VENV)/.made
	@echo "installing tracefx and what the benchmarks need"
	@$(PIP) --editable '.[bench]'
	@touch $@

$(VENV)/.gpu: pyproject.toml constraints.txt $(VENV)/.made
	@echo "installing tracefx, what its tests need, and jax with CUDA"
	@$(PIP) --editable '.[test,demo,docs,bench,gpu]'
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt $(VENV)/.made
	@echo "installing tracefx and what its site needs"
	@$(PIP) --editable '.[docs,testing]'
	@touch $@

# Pages are tested in a browser. Where there is none, and Debian's packages can be installed, it is; else these tests
# are skipped, and say so.
$(VENV)/.browser: $(VENV)/.made
	@if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null \
	&& [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing Chromium, which pages are tested in"; \
		export DEBIAN_FRONTEND=noninteractive; \
		{ apt-get update -qq && apt-get install -qq --yes --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 \
		|| echo "Chromium could not be installed"; \
	fi
	@touch $@

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "No $(PYTHON) found. Name a Python >= 3.11: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("tracefx needs Python >= 3.11; $(PYTHON) is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12")'
	@$(PYTHON) -m venv --clear $(VENV) || { echo "$(PYTHON) cannot make a virtual environment (Debian and Ubuntu: apt install python3-venv)"; exit 1; }
	@touch $@
