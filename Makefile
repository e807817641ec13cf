# Two commands: `make app` starts the explorer, `make test` passes the tests. Each sets up what it needs in .venv.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: app test check docs runs picture notebook clean

app: .venv/installed
	$(BIN)/eab app

test: .venv/installed-dev
	$(BIN)/pytest

check: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# docs/settings.md, from the declarations in eab/config.py.
docs: .venv/installed
	$(BIN)/python scripts/write_settings.py

# The bundled runs, made again by the real engine; the README's picture, by the real page; the notebook's outputs.
runs: .venv/installed
	$(BIN)/python scripts/record_runs.py

picture: .venv/installed-dev
	$(BIN)/python scripts/take_picture.py

notebook: .venv/installed-dev
	$(BIN)/python scripts/fill_notebook.py

.venv/installed: requirements.txt pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Python 3.11 or newer is needed: make PYTHON=python3.11')"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -r requirements.txt
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install -e ".[dev]"
	touch $@

clean:
	rm -rf .venv
