# Every target sets itself up: python3 (3.11 or newer) and make are enough.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-full lint fmt bench clean venv

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(READY)  ## watch a run survive a crash
	$(BIN)/python -m examples.demo

test: lint  ## lint, then the core tests
	$(BIN)/python -m pytest

test-full: lint  ## lint, then every test, the long ones included
	$(BIN)/python -m pytest -m "full or not full" --timeout 1800

lint: $(READY)  ## ruff, mypy, pyright and the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src tests $(wildcard examples benchmarks)
	for version in 3.11 3.12 3.13 3.14; do \
	  $(BIN)/basedpyright --pythonversion $$version || exit 1; done
	for platform in Darwin Windows; do \
	  $(BIN)/basedpyright --pythonversion 3.11 --pythonplatform $$platform || exit 1; done
	$(BIN)/lint-imports

fmt: $(READY)  ## format, and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY)  ## measure
	$(BIN)/python -m benchmarks

venv: $(READY)  ## only set up .venv

clean:  ## remove .venv and everything generated
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The build backend is installed first and used without isolation, so that its version is
# pinned like all others.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "holdfast needs Python 3.11 or newer, and $(PYTHON) is" \
	    "$$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt hatchling editables
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@
