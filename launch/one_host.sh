#!/usr/bin/env bash
# Runs jaxpt in one process on all devices of a machine: a CPU, GPUs, or a TPU host.
#
#   launch/one_host.sh train --config configs/quickstart.py --config.objective=mlm --workdir runs/mlm
#
# On several NVIDIA GPUs, `source launch/gpu_flags.sh` first. The arguments are jaxpt's.
# After a crash it restarts up to RESTARTS times (3) and resumes from the last valid
# checkpoint. A wrong setting stops it; Ctrl-C and SIGTERM save and stop it. To try a
# mesh on a CPU:
#   XLA_FLAGS=--xla_force_host_platform_device_count=8 launch/one_host.sh ...
set -euo pipefail
set -m # a process group of its own: it gets each signal once, from here

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jaxpt=${JAXPT:-$root/.venv/bin/jaxpt}
restarts=${RESTARTS:-3}
if ! command -v "$jaxpt" >/dev/null; then
  echo "JAXPT=$jaxpt: not found; run 'make quickstart' or name jaxpt's path" >&2
  exit 2
fi

is_stopped=
child=
pass_on() {
  is_stopped=1
  if [ -n "$child" ]; then kill "-$1" "$child" 2>/dev/null || true; fi
}
trap 'pass_on INT' INT
trap 'pass_on TERM' TERM

for ((attempt = 0; ; attempt++)); do
  "$jaxpt" "$@" &
  child=$!
  # A signal ends `wait` before the process has ended.
  while code=0 && wait "$child" || code=$? && kill -0 "$child" 2>/dev/null; do :; done
  if [ "$code" = 0 ] || [ "$code" = 2 ] || [ -n "$is_stopped" ]; then exit "$code"; fi
  if [ "$attempt" -ge "$restarts" ]; then exit "$code"; fi
  echo "launch: exit code $code; starting again ($((attempt + 1)) of $restarts)" >&2
done
