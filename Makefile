# Shortcuts; every target is one command that also works by hand.
.PHONY: setup test slow lint format types check parity examples

VENV ?= .venv
BIN := $(VENV)/bin

setup:
	python3 -m venv $(VENV)
	$(BIN)/pip install -c constraints.txt -e '.[dev]'

test:
	$(BIN)/pytest

slow:
	$(BIN)/pytest -m slow

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format:
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types:
	$(BIN)/mypy

check: lint types test slow

parity:
	$(BIN)/python scripts/parity_report.py

examples:
	$(BIN)/python scripts/make_examples.py
