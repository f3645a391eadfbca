# Every target creates the virtual environment that it needs. Requirements: Python >= 3.11 and a package registry.
# To use another Python:  make test PYTHON=python3.12

PYTHON ?= python3
PYTEST_ARGS ?= -q -n 2

VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := --constraint constraints.txt
# Modules are compiled to bytecode when they are imported first: most are never.
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq --no-compile $(CONSTRAINTS)

# The tests that need a browser, several processes or libraries for JAX; `make test` leaves them out to save time.
SLOW := tests/test_site.py tests/pictures/test_browser.py tests/gpu/test_platforms.py tests/control/test_ffi_numba.py \
	tests/interop/test_array_libraries.py tests/interop/test_as_jax_libraries.py \
	tests/sharding/test_example.py tests/sharding/test_processes.py

# The tests of control flow that try all combinations of batch axes in `make slow`.
BATCHED := $(addprefix tests/control/test_,cond.py while.py checkpoint.py solvers.py scan.py)

# The tests that generate examples or omit the costly ones by default.
LONG := tests/laws tests/differential tests/ops \
	tests/control/test_programs.py tests/control/test_custom_laws.py tests/control/test_models.py \
	tests/control/test_scan.py tests/handlers/test_checkify.py \
	tests/handlers/test_count_xla.py tests/handlers/test_laplacian.py tests/handlers/test_together.py \
	tests/handlers/test_sparsity_of_programs.py tests/handlers/test_taylor_operations.py \
	tests/handlers/test_taylor_programs.py tests/interop/test_to_jax_operations.py \
	tests/interpreters/test_entering.py tests/rewriting tests/sharding/test_shard_map.py \
	tests/xla/test_compiled_programs.py tests/xla/test_gpu_kernels.py

.PHONY: help test slow test-latest test-processors test-repeats laws demo parallel bench ecosystem test-gpu bench-gpu compile-gpu has-gpu docs lint format types unit clean
.DELETE_ON_ERROR:

help:
	@echo "make test             lint, formatting, types and tests"
	@echo "                      (its parts: make lint, make types, make unit)"
	@echo "make slow             the tests that need a browser, several processes or libraries; basedpyright; and every function"
	@echo "                      beside JAX, of which make test compares a third"
	@echo "make test-latest      the tests with the newest Python and jaxlib"
	@echo "make test-processors  the numeric tests with the instruction sets of three other x86-64 processors"
	@echo "make test-repeats     the tests of control flow with all repeated blocks shared, however small"
	@echo "make laws             search for counterexamples to the laws, and for differences from JAX: one hour"
	@echo "make demo             train a classifier of handwritten digits, check its gradients, draw a picture"
	@echo "make parallel         train a small GPT on eight simulated devices"
	@echo "make bench            benchmark tracefx against JAX"
	@echo "make test-gpu         test the results on an NVIDIA GPU against those on the host"
	@echo "make ecosystem        run libraries for JAX on JAX and on tracefx; writes to benchmarks/results"
	@echo "make bench-gpu        benchmark tracefx against JAX on an NVIDIA GPU; writes to benchmarks/results"
	@echo "make compile-gpu      compile all programs for a GPU without having one: 40 minutes, installs 3 GB"
	@echo "make docs             build the documentation site, site/index.html"
	@echo "make format           fix lint and formatting"
	@echo "make clean            remove the virtual environments, build outputs and caches"

test:
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory unit

# The script selects the Python and installs one if necessary.
slow: $(VENV)/.test $(VENV)/.browser
	$(BIN)/python -m pytest $(PYTEST_ARGS) $(SLOW) --hypothesis-profile=long
	$(BIN)/python -m pytest $(PYTEST_ARGS) tests/differential/test_functions.py $(BATCHED) -k "not errors" --hypothesis-profile=every-case
	$(BIN)/basedpyright --pythonpath $(BIN)/python

test-latest:
	@.ci/test-latest $(LATEST_ARGS)

test-processors: $(VENV)/.test
	$(BIN)/python -m tests.processors $(PROCESSORS_ARGS)

test-repeats: $(VENV)/.test
	$(BIN)/python -m pytest $(PYTEST_ARGS) --share-repeats tests/control tests/seeds tests/test_programs.py

laws: $(VENV)/.test $(VENV)/.browser
	$(BIN)/python -m pytest $(PYTEST_ARGS) $(LONG) $(SLOW) --hypothesis-profile=long
	$(BIN)/python -m pytest $(PYTEST_ARGS) tests/test_docs.py src --hypothesis-profile=optimized

demo: $(VENV)/.demo
	$(BIN)/python -m demo.digits

parallel: $(VENV)/.demo
	$(BIN)/python -m demo.parallel

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

# In an environment of its own, with fixed versions of the libraries.
ecosystem:
	$(PYTHON) -m venv .venv-ecosystem
	.venv-ecosystem/bin/python -m pip install --quiet -e . -r benchmarks/ecosystem/requirements.txt
	.venv-ecosystem/bin/python -m benchmarks.ecosystem $(ECOSYSTEM_ARGS)

# `has-gpu` fails before 3 GB are installed. The options make XLA compute float32 products in float32, as the tolerances
# require: by default, GPUs since 2020 round the factors to 11 bits.
test-gpu: has-gpu $(VENV)/.gpu
	TRACEFX_PLATFORM=gpu JAX_PLATFORMS= NVIDIA_TF32_OVERRIDE=0 XLA_FLAGS=--xla_gpu_enable_triton_gemm=false \
	$(BIN)/python -m pytest -q tests/gpu

bench-gpu: has-gpu $(VENV)/.gpu
	$(BIN)/python -m benchmarks.gpu

# XLA compiles for a described GPU. The command reports missing requirements.
compile-gpu: $(VENV)/.gpu
	$(BIN)/python -m tests.gpu.compiling

has-gpu:
	@command -v nvidia-smi >/dev/null && nvidia-smi --list-gpus | grep -q '^GPU' || { \
		echo "No NVIDIA GPU found: nvidia-smi is missing or lists none. docs/gpus.md describes the tests that need no GPU."; \
		exit 1; }

# The variable disables a warning of the theme about MkDocs 2.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "open site/index.html"

lint: $(VENV)/.test
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --quiet --check

# One run for the code and the examples of the pages, because each run analyzes the package.
types: $(VENV)/.test
	$(BIN)/python -m tests.page_modules build/pages
	$(BIN)/mypy src tests benchmarks demo docs/building build/pages
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python

# Enables bytecode caching even if the environment disables it, because the tests start many processes.
unit: $(VENV)/.test
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(PYTEST_ARGS)

format: $(VENV)/.test
	$(BIN)/ruff check --quiet --fix
	$(BIN)/ruff format --quiet

clean:
	@! mountpoint -q build/debian/proc || umount build/debian/proc
	rm -rf $(VENV) .venv-ecosystem .venv-latest .venv-oldest build dist out site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests demo benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp files are in the virtual environment and are removed with it. A changed pyproject.toml installs again.

$(VENV)/.test: pyproject.toml constraints.txt $(VENV)/.made
	@echo "installing tracefx and the requirements of its tests"
	@$(PIP) --editable '.[test,demo,docs]'
	@touch $@

$(VENV)/.runtime: pyproject.toml constraints.txt $(VENV)/.made
	@echo "installing tracefx"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.demo: pyproject.toml constraints.txt $(VENV)/.made
	@echo "installing tracefx and the requirements of the demo"
	@$(PIP) --editable '.[demo]'
	@touch $@

$(VENV)/.bench: pyproject.toml constraints.txt $(VENV)/.made
	@echo "installing tracefx and the requirements of the benchmarks"
	@$(PIP) --editable '.[bench]'
	@touch $@

$(VENV)/.gpu: pyproject.toml constraints.txt $(VENV)/.made
	@echo "installing tracefx, the requirements of its tests, and jax with CUDA"
	@$(PIP) --editable '.[test,demo,docs,bench,gpu]'
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt $(VENV)/.made
	@echo "installing tracefx and the requirements of its site"
	@$(PIP) --editable '.[docs,testing]'
	@touch $@

# Some tests open pages in Chromium. If it is missing and Debian packages can be installed, install it; otherwise these
# tests are skipped with a message.
$(VENV)/.browser: $(VENV)/.made
	@if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null \
	&& [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing Chromium, for the tests of pages"; \
		export DEBIAN_FRONTEND=noninteractive; \
		{ apt-get update -qq && apt-get install -qq --yes --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 \
		|| echo "Chromium could not be installed"; \
	fi
	@touch $@

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found. Pass a Python >= 3.11: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("tracefx needs Python >= 3.11; $(PYTHON) is " + sys.version.split()[0] + ". Pass another one: make PYTHON=python3.12")'
	@$(PYTHON) -m venv --clear $(VENV) || { echo "$(PYTHON) cannot create a virtual environment (Debian and Ubuntu: apt install python3-venv)"; exit 1; }
	@touch $@
