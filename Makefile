# Three commands do everything, set-up included: `make run`, `make test` and `make docs`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INSTALLED_DOCS := $(VENV)/.installed-docs

.PHONY: run test quick soak docs lint types install clean

run: install
	$(BIN)/s2e search digits --noise pair:0.45 --epochs 100 --trials 30

# A process for each core, up to four; each keeps to one thread.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist worksteal

test: lint types
	$(PYTEST)

quick: install
	$(PYTEST) -m "not slow"

# Faults and damaged files, thousands of times: minutes to an hour.
soak: install
	$(PYTEST) -m soak
	$(BIN)/python benchmarks/shared_study.py

# The site, in build/site: open build/site/index.html, no server is needed. Warnings are errors.
docs: $(INSTALLED_DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

$(INSTALLED_DOCS): $(INSTALLED)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
