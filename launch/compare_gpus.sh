#!/usr/bin/env bash
# A comparison on one machine with several GPUs: a worker on each trains what runs no
# other one does, and the report is made when all are finished.
#
#   launch/compare_gpus.sh --config configs/quickstart.py --workdir runs/gpus
#
# The arguments are those of jaxpt compare. The GPUs are those of CUDA_VISIBLE_DEVICES,
# or all. WORKERS=2 starts so many workers instead, all of which see the same devices,
# such as a CPU. If a worker crashes another one takes over its run, from the last
# checkpoint; Ctrl-C and SIGTERM end all, with all that was done saved, and the same
# command resumes.
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

# Starts worker $1, which has a GPU of its own if there are any.
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
# Where a worker has failed, this says which runs are missing.
start 0 "$@" --part=report
wait_for_all
exit "$worst"
