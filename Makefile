# Builds, tests and measures fastplan from a fresh checkout. `make help` lists the targets.

PYTHON ?= python3.11
CXX ?= g++
# Number of parallel test processes and compile jobs.
JOBS ?= 2
# Extra pip arguments for torch, for a machine where `pip install torch` would fetch a CUDA build.
TORCH_PIP_ARGS ?=
# Tests that run under the sanitizers. tests/parity works there too and takes about five minutes.
SANITIZE_TESTS ?= tests/engine tests/property
# Tests that run with other TorchRec versions. Elastic restarts depend on torch, not on TorchRec.
NEXT_TESTS := tests/parity tests/torchrec tests/docs/test_compatibility.py tests/docs/test_custom_cost.py \
	--ignore tests/torchrec/test_replan_processes.py --ignore tests/torchrec/test_elastic_training.py \
	--ignore tests/torchrec/test_emulated_hosts.py
# Tests of what every TorchRec version must do, less than a minute per version.
CONTRACT_TESTS ?= tests/torchrec/test_any_version.py tests/torchrec/test_versions.py
# Tests of a version in `make test-versions`. Other tests name what is new in 1.8: start-up functions that a
# patch replaces, and the rules of specs.
VERSION_TESTS = $(NEXT_TESTS)
# The parity tests draw estimators that are new in TorchRec 1.6.
CONTRACT_PARITY := tests/parity/test_contract.py
# Seconds of fuzzing per parser.
FUZZ_SECONDS ?= 60
# The interpreters of `make wheels`; those that are not installed are reported and left out.
WHEEL_PYTHONS ?= python3.10 python3.11 python3.12 python3.13
# Selects benchmarks, e.g. BENCH_ARGS="planning cache".
BENCH_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
pinned = $(shell sed -n 's/^torchrec==//p' requirements/$(1))
# The TorchRec of the environment, and the second one that `make test` runs all tests of the planner with.
OWN := $(call pinned,torchrec.txt)
NEXT := 1.9.2
# The versions of `make test-versions`, and those that `make test` only runs CONTRACT_TESTS with.
VERSIONS ?= $(call pinned,torchrec-versions.txt)
# 1.5.1 and 1.9.0 have the planners of 1.5.0 and 1.9.1.
CONTRACT_VERSIONS ?= $(filter-out $(OWN) $(NEXT) 1.5.1 1.9.0,$(VERSIONS))
PYTEST := $(BIN)/pytest -n $(JOBS) --dist worksteal
SANITIZED := build/sanitize
CPP_FILES := $(sort $(wildcard cpp/*/*.cpp cpp/*/*.h))

export FASTPLAN_JOBS ?= $(JOBS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help build demo test test-versions test-newest test-long lint format bench fuzz sanitize wheels manylinux docs \
	clean distclean

help:
	@echo "make build     build the core in place, if a file under cpp/ has changed"
	@echo "make demo      plan the Criteo model with both planners, cache, compare, write a report"
	@echo "make test      run all tests, parity with a second TorchRec, a part of it with others, the sanitizers"
	@echo "make test-versions  run the parity tests with TorchRec $(VERSIONS)"
	@echo "make version-1.7.0  run them with one version"
	@echo "make test-newest  run the contract with TorchRec's newest release"
	@echo "make test-long run the instances that take TorchRec longest, with both versions"
	@echo "make lint      check with ruff, mypy and clang-format"
	@echo "make format    format the files with ruff and clang-format"
	@echo "make bench     run the benchmarks, write docs/results.md (BENCH_ARGS=\"planning cache\" selects some)"
	@echo "make sanitize  run core and property tests under the address and UB sanitizers"
	@echo "make fuzz      fuzz every parser for a minute each (FUZZ_SECONDS=600)"
	@echo "make wheels    build a wheel for each of WHEEL_PYTHONS and test it in an empty environment"
	@echo "make manylinux build the wheels of a release in containers"
	@echo "make docs      build the documentation site in build/docs, strictly"
	@echo "make clean     remove build products; make distclean also removes the environment"
	@echo
	@echo "The first run creates $(VENV) with $(PYTHON) (PYTHON=... selects another)."

build: $(STAMPS)/native

demo: $(STAMPS)/native
	@$(BIN)/python -m bench.demo

bench: $(STAMPS)/native .torchrec/$(NEXT)/.stamp
	@$(BIN)/python -m bench $(BENCH_ARGS)

test: $(STAMPS)/native .torchrec/$(NEXT)/.stamp
	@echo "== all tests, TorchRec $(OWN)"
	@$(PYTEST) tests
	@echo "== parity and planner tests, TorchRec $(NEXT)"
	@PYTHONPATH=.torchrec/$(NEXT) $(PYTEST) $(NEXT_TESTS)
	@$(MAKE) --no-print-directory -k -j 1 $(CONTRACT_VERSIONS:%=contract-%)
	@$(MAKE) --no-print-directory sanitize

# -k: one report shows the failures of all versions.
test-versions: $(STAMPS)/native
	@$(MAKE) --no-print-directory -k -j 1 $(VERSIONS:%=version-%)

version-%: $(STAMPS)/native .torchrec/%/.stamp
	@echo "== parity and planner tests, TorchRec $*"
	@PYTHONPATH=.torchrec/$* $(PYTEST) $(VERSION_TESTS)

version-1.5.%: VERSION_TESTS = $(CONTRACT_TESTS)
version-1.6.% version-1.7.%: VERSION_TESTS = tests/parity $(CONTRACT_TESTS)
# The same source as 1.9.1 and 1.9.2.
version-1.9.0: VERSION_TESTS = $(CONTRACT_TESTS) $(CONTRACT_PARITY)

contract-%: $(STAMPS)/native .torchrec/%/.stamp
	@echo "== contract, TorchRec $*"
	@PYTHONPATH=.torchrec/$* $(PYTEST) $(CONTRACT_TESTS) $(CONTRACT_PARITY)

contract-1.5.%: CONTRACT_PARITY :=

test-long: $(STAMPS)/native .torchrec/$(NEXT)/.stamp
	@$(PYTEST) -m long tests
	@PYTHONPATH=.torchrec/$(NEXT) $(PYTEST) -m long $(NEXT_TESTS)

# The newest release may have a planner that nobody has seen: plans must be native or fall back.
test-newest: $(STAMPS)/native
	@rm -rf .torchrec/newest
	@$(PIP) install --no-deps --target .torchrec/newest torchrec
	@PYTHONPATH=.torchrec/newest $(PYTEST) $(CONTRACT_TESTS)
	@PYTHONPATH=.torchrec/newest $(BIN)/fastplan doctor

lint: $(STAMPS)/native
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(if $(CPP_FILES),$(BIN)/clang-format --dry-run -Werror $(CPP_FILES),echo "no C++ files")

format: $(STAMPS)/dev
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .
	@$(if $(CPP_FILES),$(BIN)/clang-format -i $(CPP_FILES))

# The sanitized build is a separate tree (package, tests, configuration). Otherwise the current directory
# or pytest's root could put the ordinary build first on the path.
# libstdc++ must be preloaded too, or the sanitizer can't intercept C++ exceptions. Python's own allocator
# would hide the end of Python objects.
library = $(shell $(CXX) -print-file-name=lib$(1).so)
SANITIZE_ENV = LD_PRELOAD="$(call library,asan) $(call library,ubsan) $(call library,stdc++)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc PYTHONPATH=.

sanitize: $(STAMPS)/native
	@echo "== core and property tests under the sanitizers"
	@rm -rf $(SANITIZED)
	@FASTPLAN_SANITIZE=1 $(BIN)/python setup.py --quiet build --build-lib $(SANITIZED)
	@cp -R tests pyproject.toml $(SANITIZED)
	@cd $(SANITIZED) && $(SANITIZE_ENV) $(CURDIR)/$(BIN)/python -c \
		"import os, fastplan.engine._native as n; assert n.__file__.startswith(os.getcwd()), n.__file__"
	@cd $(SANITIZED) && $(SANITIZE_ENV) $(CURDIR)/$(PYTEST) $(SANITIZE_TESTS)

wheels: $(STAMPS)/dev
	@$(BIN)/python -m tests.wheels $(WHEEL_PYTHONS)

# Needs a container engine. pyproject.toml has the settings.
manylinux: $(STAMPS)/venv
	@$(PIP) install -r requirements/wheels.txt
	@$(BIN)/cibuildwheel --output-dir dist

docs: $(STAMPS)/venv
	@$(PIP) install -r requirements/docs.txt
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/docs
	@$(BIN)/python -m tests.site build/docs
	@echo "build/docs/index.html"

fuzz: $(STAMPS)/native
	@$(BIN)/python -m tests.fuzzing --seconds $(FUZZ_SECONDS)

clean:
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f fastplan/engine/_native*.so $(STAMPS)/native
	find fastplan tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean
	rm -rf $(VENV) .torchrec

# The environment. Each step has a stamp file, so a second run does nothing.

$(STAMPS)/venv:
	@command -v $(PYTHON) >/dev/null || { \
		echo "$(PYTHON) not found: install Python 3.11, or select another: make PYTHON=python3.x" >&2; \
		exit 1; }
	@command -v $(CXX) >/dev/null || { \
		echo "$(CXX) not found: install a C++20 compiler, g++ 12 or later" >&2; exit 1; }
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { \
		echo "$(PYTHON) cannot create a virtual environment: install its venv module" >&2; exit 1; }
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/torch: requirements/torch.txt $(STAMPS)/venv
	@echo "installing torch"
	@$(PIP) install $(TORCH_PIP_ARGS) -r $<
	@touch $@

$(STAMPS)/torchrec: requirements/torchrec.txt requirements/torchrec-deps.txt $(STAMPS)/torch
	@echo "installing torchrec and its dependencies"
	@$(PIP) install -r requirements/torchrec-deps.txt
	@$(PIP) install --no-deps -r requirements/torchrec.txt
	@touch $@

$(STAMPS)/dev: requirements/dev.txt $(STAMPS)/torchrec
	@echo "installing the development tools"
	@$(PIP) install -r $<
	@touch $@

# The wildcard on the directory itself detects deleted files.
$(STAMPS)/native: $(STAMPS)/dev setup.py pyproject.toml $(CPP_FILES) $(wildcard cpp cpp/*)
	@echo "building the native core"
	@$(PIP) install --no-build-isolation --no-deps --editable .
	@touch $@

.PRECIOUS: .torchrec/%/.stamp
.torchrec/%/.stamp: requirements/torchrec-versions.txt $(STAMPS)/venv
	@grep -qx "torchrec==$*" $< || { echo "TorchRec $* is not in $<" >&2; exit 1; }
	@echo "installing TorchRec $* beside the environment"
	@rm -rf $(@D)
	@$(PIP) install --no-deps --target $(@D) torchrec==$*
	@touch $@
