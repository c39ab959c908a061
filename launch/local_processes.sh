#!/usr/bin/env bash
# Trains one run in several processes on one machine.
#
#   PROCESSES=2 launch/local_processes.sh train --config configs/quickstart.py --config.objective=mlm \
#     --workdir runs/mlm
#
# The arguments are jaxpt's. With ONE_GPU_EACH=1 process i sees only GPU i. If one process
# fails, the others stop within HEARTBEAT seconds (100); start all again to resume. On a
# CPU, DEVICES=2 gives each process two devices.
set -euo pipefail
set -m # process groups of their own: they get each signal once, from here

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jaxpt=${JAXPT:-$root/.venv/bin/jaxpt}
number=${PROCESSES:?set PROCESSES to how many are to be started}
heartbeat=${HEARTBEAT:-100}
if ! command -v "$jaxpt" >/dev/null; then
  echo "JAXPT=$jaxpt: not found; run 'make quickstart' or name jaxpt's path" >&2
  exit 2
fi
if [ -n "${DEVICES:-}" ]; then
  flag=--xla_force_host_platform_device_count
  export XLA_FLAGS="${XLA_FLAGS:-} $flag=$DEVICES"
fi
export JAX_COORDINATOR_ADDRESS=localhost:${PORT:-$((20000 + RANDOM % 20000))}
export JAX_NUM_PROCESSES=$number

children=()
# shellcheck disable=SC2329 # the traps call it
pass_on() {
  for child in "${children[@]}"; do kill "-$1" "$child" 2>/dev/null || true; done
}
trap 'pass_on INT' INT
trap 'pass_on TERM' TERM

for ((i = 0; i < number; i++)); do
  if [ -n "${ONE_GPU_EACH:-}" ]; then export CUDA_VISIBLE_DEVICES=$i; fi
  JAX_PROCESS_ID=$i "$jaxpt" "$@" --distributed --heartbeat_seconds "$heartbeat" &
  children+=($!)
done

worst=0
for child in "${children[@]}"; do
  # A signal ends `wait` before the process has ended.
  while code=0 && wait "$child" || code=$? && kill -0 "$child" 2>/dev/null; do :; done
  if [ "$worst" = 0 ]; then worst=$code; fi
done
exit "$worst"
