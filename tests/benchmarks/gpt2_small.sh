#!/usr/bin/env bash
# The study of configs/gpt2_small.py in pieces of 9 minutes: repeat the command until it
# says that the study is complete. Each piece resumes where the last one was stopped.
#
#   tests/benchmarks/gpt2_small.sh OUT DIR           # on a machine with a GPU
#   tests/benchmarks/gpt2_small.sh OUT DIR --tiny    # every part on a CPU, small
#
# DIR has the novels. PYTHON is one with jax for CUDA (.venv-gpu/bin/python, as
# accelerator.sh makes it). LIMIT is the seconds of a piece (540). The runs are in
# runs/gpt2-small; OUT gets the archived studies small and full when they are complete.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ $# -lt 2 ] || { [ $# -gt 2 ] && [ "$3" != --tiny ]; }; then
  echo "usage: tests/benchmarks/gpt2_small.sh OUT DIR [--tiny]" >&2
  exit 2
fi
out=$1 data=$2 small=small full=full
if [ $# -gt 2 ]; then small=tiny full=tiny; fi
python=${PYTHON:-.venv-gpu/bin/python}
runs=${RUNS:-runs/gpt2-small}
end=$((SECONDS + ${LIMIT:-540}))
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}

study() { # NAME CONFIG TITLE
  if [ ! -e "$runs/$1/report.json" ]; then
    left=$((end - SECONDS))
    # SIGTERM writes a checkpoint; a run that is longer loses at most 200 steps.
    { [ "$left" -gt 0 ] && timeout -k 60 "$left" "$python" -m jaxpt compare \
      --config "$2" --workdir "$runs/$1"; } ||
      { echo "$1: stopped; repeat the command"; exit 3; }
  fi
  if [ ! -e "$out/$1" ]; then
    "$python" -m jaxpt archive --workdir "$runs/$1" --to "$out/$1" --title "$3" \
      --question "Which objective learns most from the same FLOPs?" \
      --command "jaxpt compare --config $2 --workdir $runs/$1"
  fi
}

mkdir -p "$out"
study small "configs/gpt2_small.py:$data,$small" "Learning rates at width 256"
study full "configs/gpt2_small.py:$data,$full,$runs/small" "Four objectives at GPT-2 small"
echo "complete: $out/small, $out/full"
