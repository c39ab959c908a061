PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CHECK := import sys; sys.exit(sys.version_info < (3, 11) and "jaxpt needs Python 3.11 or newer: make PYTHON=python3.12 ...")
# The exact versions that are tested; pyproject.toml has the allowed ranges. Users need
# the first lock, and the other commands add the tests and tools of the second. A package
# of which no file has a listed hash is not installed.
LOCKED := --no-deps --require-hashes
# A line instead of pip's; all that it says if it fails.
quietly = @echo $(1); { $(2); } > $(VENV)/setup.log 2>&1 || { cat $(VENV)/setup.log; exit 1; }
USER_NEEDS := requirements.lock pyproject.toml setup.py

.PHONY: help quickstart lint docs notebooks test test-all clean

help:
	@echo "make quickstart   train four objectives and write a report (runs/quickstart)"
	@echo "make test         run the tests"
	@echo "make lint         run ruff, mypy and a check of prose"
	@echo "make docs         build the documentation (build/site)"
	@echo "Each creates .venv if it is missing. CONTRIBUTING.md lists the other targets."

quickstart: $(VENV)/ready
	$(BIN)/jaxpt compare --config configs/quickstart.py --workdir runs/quickstart

lint: $(VENV)/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/prose.py

# The site, in build/site; a link that leads nowhere is an error.
docs: $(VENV)/ready-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# All of them anew, with their full settings; the outputs are kept in them.
notebooks: $(VENV)/ready-dev
	$(BIN)/jupyter execute --inplace notebooks/*.ipynb

test: $(VENV)/ready-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST_FLAGS)

# Also what takes long: the marker slow.
test-all: $(VENV)/ready-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not gpu and not peers and not ray and not onnx and not browser and not aot'

$(VENV)/ready: $(USER_NEEDS)
	@$(PYTHON) -c '$(CHECK)'
	@$(PYTHON) -m venv $(VENV)
	$(call quietly,"installing requirements.lock into $(VENV): a minute or two",\
	  $(BIN)/python -m pip install $(LOCKED) -r requirements.lock && \
	  $(BIN)/python -m pip install --no-deps -e .)
	@touch $@

$(VENV)/ready-dev: $(VENV)/ready requirements-dev.lock
	$(call quietly,"installing requirements-dev.lock into $(VENV): a minute or two",\
	  $(BIN)/python -m pip install $(LOCKED) -r requirements-dev.lock && \
	  $(BIN)/python -m pip check)
	@touch $@

clean:
	rm -rf build .pytest_cache $(VENV) $(PEERS) $(RAY) $(ONNX) $(AOT) $(WHEEL) $(NEXT) $(RELEASE) $(LOCK)

include .github/maintainers.mk
