# `make app` starts the explorer, `make test` runs the tests. Both first install what they need into .venv.

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: app test check runs picture notebook clean

app: .venv/installed
	$(BIN)/eab app

test: .venv/installed-dev
	$(BIN)/pytest -n $(WORKERS) --dist loadfile

check: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Remake the bundled runs with the engine, the README's moving picture from the real page, and the notebook's outputs.
runs: .venv/installed
	$(BIN)/python scripts/record_runs.py

picture: .venv/installed-dev
	$(BIN)/python scripts/record_animation.py

notebook: .venv/installed-dev
	$(BIN)/python scripts/fill_notebook.py

.venv/installed: requirements.txt pyproject.toml scripts/install.py
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Python 3.11 or newer is needed: make PYTHON=python3.11')"
	$(PYTHON) -m venv .venv
	$(BIN)/python scripts/install.py
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install -e ".[dev]"
	touch $@

clean:
	rm -rf .venv
