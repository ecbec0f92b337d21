# One set of targets for people and for CI. Everything runs in .venv, which `make install` builds and keeps up to date.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test lint format bench docs clean

install: .venv/installed

# The stamp is newer than what decides the environment, so a second call does nothing.
.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "clop needs Python 3.11 or newer, $(PYTHON) is older: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --constraint constraints.txt \
	    timm 'procgen-mirror; platform_system == "Linux" and python_version < "3.13"'
	@touch $@

# Ends with a page of what it made, and names the file to open.
demo: install
	$(BIN)/clop demo --out demo

test: install
	$(BIN)/python -m pytest --durations=10

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install
	$(BIN)/clop bench layer

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "the documentation is in site/index.html"

clean:
	rm -rf site .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
