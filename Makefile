# Two commands for a fresh machine: `make demo` and `make test`. Both set everything up in .venv first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test lint typecheck setup dist bench gpu clean

demo: setup
	$(BIN)/python examples/demo.py

test: setup
	$(BIN)/python tests/side_by_side.py

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache

typecheck: setup
	$(BIN)/mypy

setup: $(VENV)/.ready

$(VENV)/.ready: constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "Kernwright needs Python 3.11 to 3.13; $(PYTHON) is another version. Remedy: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "setting up $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) torch==2.13.0 hatchling editables
	$(PIP_INSTALL) --no-build-isolation -e '.[dev]'
	@touch $@

# The wheel and the source archive of a release.
dist: setup
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist

bench: setup
	$(BIN)/python benchmarks/bench_judge.py all

# All GPU tests and a short benchmark, on a machine that may have no network: nothing is set up, its own Python and the
# folder that `kernwright bundle` made must do. Leaves $(OUT)/evidence.tar.gz for `kernwright ledger import`.
BUNDLE ?= bundle
OUT ?= .kernwright/gpu
MINUTES ?= 9.8
SEES_CUDA := -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'

gpu:
	@python="$(PYTHON)"; if $(BIN)/python $(SEES_CUDA) 2>/dev/null; then python=$(BIN)/python; fi; \
	"$$python" benchmarks/gpu_check.py --out "$(OUT)" --minutes "$(MINUTES)" --bundle "$(BUNDLE)"

clean:
	rm -rf $(VENV) dist .kernwright .pytest_cache .mypy_cache .ruff_cache
