#!/usr/bin/env bash
# Runs a comparison on one machine with several GPUs: one worker for each GPU trains the
# runs that no other worker trains; then the report is written.
#
#   launch/compare_gpus.sh --config configs/quickstart.py --workdir runs/gpus
#
# The arguments are those of jaxpt compare. The GPUs are those of CUDA_VISIBLE_DEVICES,
# or all. WORKERS=2 starts two workers instead, which share all devices, such as a CPU.
# If a worker crashes, another one resumes its run from the last checkpoint. Ctrl-C and
# SIGTERM save and stop all workers; the same command resumes.
set -euo pipefail
set -m # process groups of their own: they get each signal once, from here

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jaxpt=${JAXPT:-$root/.venv/bin/jaxpt}
if ! command -v "$jaxpt" >/dev/null; then
  echo "JAXPT=$jaxpt: not found; run 'make quickstart' or name jaxpt's path" >&2
  exit 2
fi

gpus=()
if [ -z "${WORKERS:-}" ]; then
  if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
    IFS=, read -r -a gpus <<<"$CUDA_VISIBLE_DEVICES"
  elif command -v nvidia-smi >/dev/null; then
    mapfile -t gpus < <(nvidia-smi --query-gpu=index --format=csv,noheader)
  fi
  if [ ${#gpus[@]} = 0 ]; then
    echo "$0: found no GPU; set WORKERS to how many workers are to share the CPU" >&2
    exit 2
  fi
fi
number=${WORKERS:-${#gpus[@]}}

children=()
stopped=
# shellcheck disable=SC2329 # the traps call it
pass_on() {
  stopped=1
  for child in "${children[@]}"; do kill "-$1" "$child" 2>/dev/null || true; done
}
trap 'pass_on INT' INT
trap 'pass_on TERM' TERM

# Starts worker $1, with one GPU if there are any.
start() {
  if [ ${#gpus[@]} != 0 ]; then export CUDA_VISIBLE_DEVICES=${gpus[$1]}; fi
  "$jaxpt" compare "${@:2}" &
  children+=($!)
}

# Waits for all; worst is the first exit code that is not 0.
wait_for_all() {
  worst=0
  for child in "${children[@]}"; do
    # A signal ends `wait` before the process has ended.
    while code=0 && wait "$child" || code=$? && kill -0 "$child" 2>/dev/null; do :; done
    if [ "$worst" = 0 ]; then worst=$code; fi
  done
  children=()
}

start 0 "$@" --part=prepare
wait_for_all
if [ "$worst" != 0 ]; then exit "$worst"; fi
for ((i = 0; i < number; i++)); do start "$i" "$@" --part=runs; done
wait_for_all
if [ -n "$stopped" ]; then exit "$worst"; fi
# If a worker has failed, this lists the missing runs.
start 0 "$@" --part=report
wait_for_all
exit "$worst"
