# `make demo` and `make test` need Python 3.11 or later with pip, nothing else. Each makes its own .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DB ?= cases.db
TEXT ?= My invoice looks wrong and the API returns 401 after we rotated keys
AUTO ?=
# The words reach the command as they were typed: a `$50` or a quote in them is code for neither make nor the shell.
override TEXT := $(value TEXT)
export DB TEXT

.PHONY: demo test crash soak format lint type bench docs clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@ $(VENV)/.run

demo: $(VENV)/.run  ## the support case on a SQLite file, asking for approval in the terminal; DB= TEXT= AUTO=approve|reject
	$(BIN)/langgraph-handoff demo --db "$$DB" $(if $(AUTO),--auto $(AUTO)) $(ARGS) -- "$$TEXT" || test $$? -eq 3  # 3: the case waits for a person

test: $(VENV)/.dev  ## all tests
	$(BIN)/python -m pytest -n 2 $(ARGS)

crash: $(VENV)/.dev  ## kill a process at every step of a case
	rm -rf build/crash
	$(BIN)/python -m tests.restart.crash build/crash $(ARGS)

soak: $(VENV)/.dev  ## workers under SIGKILL and SIGSTOP; SECONDS= SEED=
	rm -rf build/soak
	$(BIN)/python -m tests.restart.soak build/soak --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED)) $(ARGS)

format: $(VENV)/.dev  ## format the code
	$(BIN)/ruff format langgraph_handoff graphs examples tests benchmarks
	$(BIN)/ruff check --fix langgraph_handoff graphs examples tests benchmarks

lint: $(VENV)/.dev  ## style and the floors of the house
	$(BIN)/ruff check langgraph_handoff graphs examples tests benchmarks
	$(BIN)/lint-imports

type: $(VENV)/.dev  ## mypy --strict on the package and on what users may write
	$(BIN)/mypy

bench: $(VENV)/.dev  ## against the neighbours, side by side
	$(BIN)/python benchmarks/run.py $(ARGS)
	$(BIN)/python benchmarks/recall.py

docs: $(VENV)/.dev  ## run README and examples
	$(BIN)/python -m pytest tests/docs $(ARGS)

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
