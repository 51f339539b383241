# Everything a fresh machine needs: Python 3.11 or newer, and make.
#
#   make train    generate a graph, train on it, write a report          make test     the default tests
#   make check    format, lint, types, layers                            make deep     the long tests
#   make bench    the benchmarks that need no other library              make compat   PyG's own tests of its loader, on ours
#   make lowest   the default tests with the oldest versions that pyproject.toml allows
#   make soak     an hour of training under a bound on memory (MINUTES=60)
#   make gpu      on a machine with a GPU: its tests, then its benchmarks (FOLDER=... for 17 GB of graphs)

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
OUT ?= out
MINUTES ?= 60
FOLDER ?= $(OUT)/graphs
CONSTRAINTS := $(VENV)/constraints.txt
LOWEST := $(VENV)/lowest

.PHONY: train test lowest check deep soak bench gpu compat clean

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	@if command -v nvidia-smi >/dev/null; then grep -v -e '^torch==' -e '^triton==' constraints.txt; else cat constraints.txt; fi > $(CONSTRAINTS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable .
	@touch $@

$(VENV)/installed-for-tests: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable '.[test]'
	@touch $@

train: $(VENV)/installed
	@rm -rf $(OUT)/train
	@mkdir -p $(OUT)
	$(BIN)/penstock generate communities $(OUT)/communities --num-nodes 200000 --num-edges 4000000 --overwrite
	$(BIN)/penstock train $(OUT)/communities --out $(OUT)/train --num-neighbors 10,5 --epochs 5

test: $(VENV)/installed-for-tests
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=20

# All but torch, which is as in constraints.txt: pip finds no older CPU build. Old versions call what newer ones of others deprecate.
lowest: export PYTEST_ADDOPTS = -W ignore::DeprecationWarning
lowest:
	$(PYTHON) -m venv $(LOWEST)
	@sed -n -e '/^    "torch>/d' -e 's/^    "\(.*\)>=\(.*\)",$$/\1==\2/p' pyproject.toml > $(LOWEST)/constraints.txt
	@grep '^torch==' constraints.txt >> $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(LOWEST)/constraints.txt --editable '.[test]'
	$(LOWEST)/bin/python -m pytest -n 2 --dist worksteal

check: $(VENV)/installed-for-tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest -q tests/test_layers.py

deep: $(VENV)/installed-for-tests
	$(BIN)/python -m pytest -m deep

soak: $(VENV)/installed-for-tests
	PENSTOCK_SOAK_MINUTES=$(MINUTES) $(BIN)/python -m pytest -m soak -s

bench: $(VENV)/installed-for-tests
	$(BIN)/python -m bench

gpu: export TRITON_INTERPRET = 0
gpu: $(VENV)/installed-for-tests
	-$(BIN)/python -m pytest -q -W default -m gpu tests/gpu/test_pinned.py
	$(BIN)/python -m pytest -q -W default -m gpu tests
	$(BIN)/python -m bench.gpu_all $(FOLDER)
	$(BIN)/python -m bench.tables

compat: $(VENV)/installed-for-tests
	$(BIN)/python -m bench.compat $(PYG)

clean:
	rm -rf $(VENV) $(OUT) build dist src/*.egg-info
