PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: quickstart test clean

quickstart: $(VENV)/ready
	$(BIN)/jaxpt compare --config configs/quickstart.py --workdir runs/quickstart

test: $(VENV)/ready
	$(BIN)/python -m pytest -n 2

$(VENV)/ready: requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "jaxpt needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -r requirements.txt -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV)
