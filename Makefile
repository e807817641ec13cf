# `make app` starts the explorer, `make site` writes it as static files into `site/`, `make test` runs the quick tests,
# `make test-all` the slow ones, too. All first install what they need into .venv.

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: app site test test-all check docs docs-site dist url lock runs measurements notebook clean

app: .venv/installed
	$(BIN)/eab app

# The explorer as static files, for any web server.
site: .venv/installed
	$(BIN)/eab site site

test: .venv/installed-dev
	$(BIN)/pytest -n $(WORKERS) --dist loadfile

test-all: .venv/installed-dev
	$(BIN)/pytest -n $(WORKERS) --dist loadfile -m 'not load and not nightly'

check: .venv/installed-dev check-js
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The browser runs the JavaScript as it is: Node only checks it, so it may be missing, but not in CI.
.PHONY: check-js
check-js:
	@if command -v npm >/dev/null; then \
		$(MAKE) --silent node_modules/.package-lock.json && npm run --silent check; \
	elif [ -n "$$CI" ]; then \
		echo "The JavaScript cannot be checked: npm is missing. Install Node.js 20 or newer." >&2; exit 1; \
	else \
		echo "The JavaScript is not checked: npm is missing. Install Node.js 20 or newer to check it."; \
	fi

node_modules/.package-lock.json: package.json package-lock.json
	npm ci --no-audit --no-fund
	touch $@

# What pages and eab/api/settings.py repeat from declarations.
docs: .venv/installed
	$(BIN)/python scripts/write_docs.py

# The pages of docs/ and the reference of the library as a site in build/docs.
docs-site: .venv/installed-dev
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs build/docs

# The sdist and the wheel in dist/, as they are released.
dist: .venv/installed-dev
	rm -rf dist
	$(BIN)/hatchling build --directory dist
	$(BIN)/twine check --strict dist/*

# The address of the repository, in every file that names it: make url URL=https://example.org/eab-explorer
url:
	$(PYTHON) scripts/set_url.py "$(URL)"

# Every package of the app on Linux, with PyTorch's CPU build, by version and hash, and their licences. UV_INDEX must name the
# index of PyTorch's CPU builds: PyPI does not have them.
lock: .venv/installed-dev
	sed 's/^torch==[^ ]*/&+cpu/; /^-e/d' requirements.txt | $(BIN)/uv pip compile pyproject.toml - --extra app --quiet --upgrade \
		--universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links \
		--index-strategy unsafe-best-match --custom-compile-command 'make lock' --output-file requirements.lock
	$(BIN)/python scripts/write_docs.py --licences

# Remake the bundled runs with the engine.
runs: .venv/installed
	$(BIN)/python scripts/record_runs.py

# Measure again what the pages open with; nothing else should run on the machine.
measurements: .venv/installed
	$(BIN)/python scripts/record_measurements.py

notebook: .venv/installed-dev
	$(BIN)/python scripts/fill_notebook.py

.venv/installed: requirements.txt pyproject.toml scripts/install.py
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Python 3.11 or newer is needed: make PYTHON=python3.11')"
	$(PYTHON) -m venv .venv
	$(BIN)/python scripts/install.py
	$(BIN)/eab models get smollm2 --optional
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install -e ".[dev]"
	touch $@

clean:
	rm -rf .venv
