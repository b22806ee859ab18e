# Every target sets itself up: python3 (3.11 or newer) and make are enough.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Each of these keeps one processor busy: as many as there are go side by side.
TYPES := mypy pyright-3.11 pyright-3.12 pyright-3.13 pyright-3.14
TYPES += pyright-3.11-Darwin pyright-3.11-Windows
JOBS ?= $(shell getconf _NPROCESSORS_ONLN || echo 2)
# Tests wait more than they compute: for processes, leases, servers.
WORKERS ?= 4
# Without it pytest leaves out what is marked `full`.
EVERY := -m "full or not full" --timeout 1800

# Tests start hundreds of processes: without it each would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-full test-frameworks matrix lint mypy fmt bench bench-frameworks clean venv

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(READY)  ## watch a run survive a crash
	$(BIN)/python -m examples.demo

test: lint  ## lint, then the core tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test-full: lint  ## lint, then every test, the long ones and the frameworks' included
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(EVERY)
	@$(MAKE) --no-print-directory test-frameworks WHICH='$(EVERY)'

# CrewAI cannot be installed with the others: it has an environment to itself.
test-frameworks: .venv-one/.ready .venv-two/.ready  ## the adapters, with the real frameworks
	.venv-one/bin/python -m mypy --config-file frameworks/mypy.ini src/holdfast/adapters tests/adapters
	.venv-two/bin/python -m mypy --config-file frameworks/mypy.ini src/holdfast/adapters/crewai tests/adapters/two
	.venv-one/bin/python -m pytest -n $(WORKERS) --dist loadfile $(WHICH) tests/adapters/one
	.venv-two/bin/python -m pytest -n $(WORKERS) --dist loadfile $(WHICH) tests/adapters/two
	$(PYTHON) -m tests.adapters.matrix

matrix:  ## write what the adapters' tests have shown into docs/adapters.md
	$(PYTHON) -m tests.adapters.matrix --write

lint: $(READY)  ## ruff, mypy, pyright and the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory -j $(JOBS) $(TYPES)

mypy: $(READY)
	$(BIN)/mypy src tests $(wildcard examples benchmarks)

pyright-%: $(READY)
	$(BIN)/basedpyright --pythonversion $(firstword $(subst -, ,$*)) \
	  --pythonplatform $(or $(word 2,$(subst -, ,$*)),Linux)

fmt: $(READY)  ## format, and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## measure
	$(BIN)/python -m benchmarks

bench-frameworks: .venv-one/.ready .venv-two/.ready  ## measure what the adapters cost
	.venv-one/bin/python -m benchmarks.adapters one
	.venv-two/bin/python -m benchmarks.adapters two

venv: $(READY)  ## only set up .venv

# The frameworks have environments of their own, each pinned as a whole.
.venv-%/.ready: frameworks/%.txt frameworks/%.constraints.txt pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-$*
	.venv-$*/bin/python -m pip install -q -c constraints.txt hatchling editables
	.venv-$*/bin/python -m pip install -q -c frameworks/$*.constraints.txt -r frameworks/$*.txt
	.venv-$*/bin/python -m pip install -q -c frameworks/$*.constraints.txt --no-build-isolation -e .
	@touch $@

clean:  ## remove .venv and everything generated
	rm -rf .venv .venv-one .venv-two build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The build backend is installed first and used without isolation, so that its version is
# pinned like all others.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "holdfast needs Python 3.11 or newer, and $(PYTHON) is" \
	    "$$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install -q -c constraints.txt hatchling editables
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@
