#!/usr/bin/env bash
# Runs jaxpt on all workers of a Cloud TPU pod slice, created by a queued resource.
#
#   export PROJECT=my-project ZONE=us-central2-b TPU=jaxpt-v4 NFS=10.0.0.2:/share
#   export ACCELERATOR=v4-32 RUNTIME=tpu-ubuntu2204-base
#   launch/tpu_pod.sh create        # requests it and waits until it is ready
#   launch/tpu_pod.sh setup         # copies and installs jaxpt, mounts NFS at /mnt/runs
#   launch/tpu_pod.sh run train --config configs/quickstart.py --config.objective=mlm \
#     --config.train.fsdp=0 --workdir /mnt/runs/mlm
#   launch/tpu_pod.sh stop          # saves and stops the run; `run` resumes it
#   launch/tpu_pod.sh delete
#
# Several slices (or TPU VMs) share a comparison: on one of them `run compare --part=prepare
# ...`, then on each, at the same time, `TPU=jaxpt-a launch/tpu_pod.sh run compare
# --part=runs --workdir /mnt/runs/c`, and finally `run compare --part=report ...` on one.
# A slice trains one run at a time; if a slice is lost, another one resumes its run.
#
# NFS is a disk that all workers share (a Filestore instance), with text, checkpoints and
# logs. SPOT=1 requests preemptible machines. DRY_RUN=1 prints the commands. JAX finds
# the processes by the pod's metadata.
set -euo pipefail

: "${PROJECT:?set PROJECT to your Google Cloud project}"
: "${ZONE:?set ZONE to a zone with TPUs, such as us-central2-b}"
: "${TPU:?set TPU to a name of your choice}"
where=(--project="$PROJECT" --zone="$ZONE")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

call() {
  if [ -n "${DRY_RUN:-}" ]; then
    printf '%q ' "$@"
    echo
  else
    "$@"
  fi
}

on_all_workers() {
  call gcloud compute tpus tpu-vm ssh "$TPU" "${where[@]}" --worker=all --command="$1"
}

create() {
  : "${ACCELERATOR:?set ACCELERATOR to a type, such as v4-32}"
  : "${RUNTIME:?set RUNTIME to a version, such as tpu-ubuntu2204-base}"
  local spot=()
  if [ -n "${SPOT:-}" ]; then spot=(--spot); fi
  call gcloud compute tpus queued-resources create "$TPU" --node-id="$TPU" \
    "${where[@]}" --accelerator-type="$ACCELERATOR" --runtime-version="$RUNTIME" \
    ${spot[@]+"${spot[@]}"}
  local state=
  while [ "$state" != ACTIVE ]; do
    state=$(call gcloud compute tpus queued-resources describe "$TPU" "${where[@]}" \
      --format='value(state.state)')
    echo "$state"
    if [ -n "${DRY_RUN:-}" ]; then return; fi
    case $state in
    FAILED | SUSPENDED | SUSPENDING) exit 1 ;;
    ACTIVE) ;;
    *) sleep 30 ;;
    esac
  done
}

setup() {
  : "${NFS:?set NFS to a shared disk, HOST:/PATH}"
  on_all_workers 'mkdir -p jaxpt-source'
  call gcloud compute tpus tpu-vm scp --recurse "$root/jaxpt" "$root/configs" \
    "$root/requirements.txt" "$root/pyproject.toml" "$root/README.md" \
    "$root/LICENSE" "$TPU:jaxpt-source/" "${where[@]}" --worker=all
  on_all_workers "set -e
    sudo apt-get install -y -q nfs-common
    sudo mkdir -p /mnt/runs
    mountpoint -q /mnt/runs || sudo mount -t nfs $(printf %q "$NFS") /mnt/runs
    sudo chmod a+rwx /mnt/runs
    python3 -m pip install --user --quiet uv
    python3 -m uv venv --quiet --allow-existing --python 3.11 jaxpt-venv
    python3 -m uv pip install --quiet --python jaxpt-venv \\
      -r jaxpt-source/requirements.txt 'jax[tpu]==0.10.2' ./jaxpt-source"
}

run() {
  on_all_workers "cd jaxpt-source && JAXPT_CACHE=/mnt/runs/cache \
../jaxpt-venv/bin/jaxpt $(printf '%q ' "$@")--distributed"
}

action=${1:-}
shift || true
case $action in
create | setup | run) "$action" "$@" ;;
stop) on_all_workers "pkill -TERM -f jaxpt-venv/bin/jaxpt" ;;
delete)
  call gcloud compute tpus queued-resources delete "$TPU" "${where[@]}" --force --quiet
  ;;
*)
  echo "$0 ${action:-?}: must be create, setup, run ARGUMENTS, stop or delete" >&2
  exit 2
  ;;
esac
