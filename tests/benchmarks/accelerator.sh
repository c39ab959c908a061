#!/usr/bin/env bash
# All that an hour with one NVIDIA GPU is wanted for, in under 9 minutes: the tests that
# need one, then published sizes beside torch.compile, each case as soon as the last one
# has ended, so that what is done when the time is over is kept.
#
#   tests/benchmarks/accelerator.sh OUT           # on a machine with a GPU
#   tests/benchmarks/accelerator.sh OUT --tiny    # every part on a CPU, small
#
# PYTHON names one with jax for CUDA, torch and transformers; else one is made in
# .venv-gpu from the package index (CUDA=12 or 13). LIMIT is the seconds in all (530),
# TESTS_LIMIT those of the tests (150). OUT gets device.json, tests.log, table.txt, and
# for each case a JSON file and a trace of a few steps.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${1:?must name a folder, as in: tests/benchmarks/accelerator.sh OUT}
tiny=${2:-}
if [ -n "$tiny" ] && [ "$tiny" != --tiny ]; then
  echo "$2: must be --tiny or nothing" >&2
  exit 2
fi
limit=${LIMIT:-530}
start=$SECONDS
mkdir -p "$out"
left() { echo $((limit - SECONDS + start)); }

python=${PYTHON:-}
if [ -z "$python" ]; then
  python=.venv-gpu/bin/python
  if [ ! -e .venv-gpu/ready ]; then
    "${BASE_PYTHON:-python3}" -m venv .venv-gpu
    "$python" -m pip install -q -r requirements.txt -r requirements-dev.txt -e '.[dev]' \
      torch "jax[cuda${CUDA:-12}]"
    touch .venv-gpu/ready
  fi
fi
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}

"$python" - "$out/device.json" "$tiny" <<'END'
import json, sys, jax

device = jax.devices()[0]
if device.platform != "gpu" and not sys.argv[2]:
    sys.exit(f"{device.device_kind}: must be a GPU, or be asked with --tiny")
import torch

told = {
    "device": device.device_kind,
    "jax": jax.__version__,
    "torch": torch.__version__,
    "torch_sees": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
}
print(told)
json.dump(told, open(sys.argv[1], "w"), indent=1)
END

echo "== tests"
collect=()
if [ -n "$tiny" ]; then collect=(--collect-only); fi
code=0
# Several processes share the GPU: compiling takes most of the time.
XLA_PYTHON_CLIENT_PREALLOCATE=false timeout "${TESTS_LIMIT:-150}" "$python" -m pytest \
  -m gpu -n auto --maxprocesses 13 tests/ops tests/objectives "${collect[@]}" >"$out/tests.log" 2>&1 || code=$?
tail -n 3 "$out/tests.log"

# The four main objectives first; those that need most memory last.
cases=(clm-gpt2 mlm-bert-base-512 span_corruption-t5-base electra-base
  mlm-bert-base-128 clm-gpt2-xl)
options=(--dtype bfloat16 --rounds 3 --steps 10 --together --trace "$out/traces")
if [ -n "$tiny" ]; then
  cases=(clm-4x256 mlm-4x256 span_corruption-4x256 electra-4x256)
  options=(--rounds 1 --steps 1 --steps_per_call 1 --rest 0 --together
    --trace "$out/traces")
fi
echo "== training, $(left) seconds left"
: >"$out/table.txt"
for case in "${cases[@]}"; do
  if [ "$(left)" -le 0 ]; then
    echo "$case: no time left" | tee -a "$out/table.txt"
    continue
  fi
  timeout "$(left)" "$python" tests/benchmarks/training --cases "$case" --compile \
    "${options[@]}" --json "$out/$case.json" 2>"$out/$case.log" | tee -a "$out/table.txt" ||
    echo "$case: stopped or failed; $out/$case.log says why" | tee -a "$out/table.txt"
done
echo "== $((SECONDS - start)) seconds in all; $out"
exit "$code"
