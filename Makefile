# Two commands for a fresh machine: `make demo` and `make test`. Both set everything up in .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint typecheck setup bench clean

demo: setup
	$(BIN)/python examples/demo.py

test: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: setup
	$(BIN)/mypy

setup: $(VENV)/.ready

$(VENV)/.ready: constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' || { \
	  echo "Kernwright needs Python 3.11 or 3.12; $(PYTHON) is another. Remedy: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) torch==2.13.0 hatchling editables
	$(PIP_INSTALL) --no-build-isolation -e '.[dev]'
	@touch $@

bench: setup
	$(BIN)/python benchmarks/bench_judge.py all

clean:
	rm -rf $(VENV) .kernwright .pytest_cache .mypy_cache .ruff_cache
