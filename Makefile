# Everything starts from a machine with Python 3.11+ and make: each target sets up what it needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One worker more than there are cores: many tests wait for processes that they have started.
WORKERS = $$($(BIN)/python -c "import os; print((os.cpu_count() or 1) + 1)")
CONSTRAINTS := constraints.txt
# Workers and the processes that tests start share what Python has compiled, also where it is told to keep nothing.
PYTEST = OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder

.PHONY: help demo test test-all test-ci lint unit unit-all bench docs release wheel reproduce report notebooks browser clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Two stamps: the package alone for the demo, the tools as well for the tests.
$(VENV)/.installed: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c $(CONSTRAINTS) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c $(CONSTRAINTS) -e '.[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c $(CONSTRAINTS) -e '.[bench]'
	@touch $@

demo: $(VENV)/.installed ## seven units, slopes next to the paper's and the limit, rates of smooth gates
	$(BIN)/gatelab demo

# The linters, of which the longest takes one core, run beside the tests.
test: $(VENV)/.dev ## linters, types, layers, doctests, tests but the long ones
	$(MAKE) --no-print-directory -j 2 lint unit

test-all: $(VENV)/.dev ## the same with the long tests: proofs at full size, Ray, notebooks, killed processes
	$(MAKE) --no-print-directory -j 2 lint unit-all

# Of the long tests those that guard what cannot be seen: stores and trainings that are killed, Ray, commands, studies.
LONG = tests/test_readme.py tests/test_docs.py tests/sweep tests/train tests/cli tests/anatomy tests/linearization tests/models tests/studies/test_studies.py
test-ci: $(VENV)/.dev ## make test and the long tests of sweeps, trainings, commands and studies: what .ci/run takes
	$(MAKE) --no-print-directory test
	$(PYTEST) -o addopts=--strict-markers -q -m slow $(LONG)

lint: $(VENV)/.dev ## ruff, basedpyright, the import-layer contract, the house's own rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/python tools/house.py

unit: $(VENV)/.dev ## pytest with doctests, on all cores
	$(PYTEST) -m "not slow"

unit-all: $(VENV)/.dev
	$(PYTEST)

bench: $(VENV)/.bench ## ratios against peers and against the paper's solver, as tables
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks

reproduce: $(VENV)/.installed ## every table and figure of the papers, the long ones from the committed records
	$(BIN)/gatelab reproduce all

report: reproduce ## one page of all of it
	$(BIN)/gatelab report

notebooks: $(VENV)/.dev ## execute the notebooks of examples/ again, in place
	$(BIN)/jupyter execute --inplace --timeout=600 --NotebookClient.record_timing=False examples/*.ipynb

browser: $(VENV)/.dev ## what the tests of the page need beside a Chromium of the system's (apt install chromium)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c $(CONSTRAINTS) -e '.[browser]'

docs: $(VENV)/.dev ## the documentation as a site in site/, without the network; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

release: $(VENV)/.dev ## source archive and wheel in dist/, the wheel made from the archive, their metadata checked
	rm -rf dist build
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/twine check --strict dist/*

wheel: release ## run the demo from the wheel of the release, away from the sources
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --no-deps --target build/wheel dist/*.whl
	cd build && PYTHONPATH=$(CURDIR)/build/wheel $(abspath $(BIN))/python -c "import gatelab; assert 'build/wheel' in gatelab.__file__"
	cd build && PYTHONPATH=$(CURDIR)/build/wheel $(abspath $(BIN))/python -m gatelab demo --out demo

clean: ## remove what was built (not the virtual environment)
	rm -rf build dist site gatelab-out .pytest_cache .ruff_cache
