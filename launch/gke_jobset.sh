#!/usr/bin/env bash
# Runs jaxpt on GKE, one process per machine, as a JobSet (install its controller first:
# https://jobset.sigs.k8s.io).
#
#   docker build -f launch/Dockerfile -t REGISTRY/jaxpt . && docker push REGISTRY/jaxpt
#   export NAME=mlm IMAGE=REGISTRY/jaxpt NODES=2 GPUS=8 CLAIM=runs
#   launch/gke_jobset.sh apply train --config configs/quickstart.py --config.objective=mlm \
#     --config.train.fsdp=8 --workdir /runs/mlm
#   launch/gke_jobset.sh logs
#   launch/gke_jobset.sh delete       # saves and stops the run; `apply` resumes it
#
# CLAIM is a PersistentVolumeClaim that all machines can write to at once
# (ReadWriteMany, such as Filestore), mounted at /runs. RESTARTS (10) limits the number of
# restarts. `print` instead of `apply` prints the manifest. kubectl must point at the
# cluster.
set -euo pipefail

: "${NAME:?set NAME to a name for the run}"
action=${1:-}
shift || true

render() {
  : "${IMAGE:?set IMAGE to the image to run, built from launch/Dockerfile}"
  : "${NODES:?set NODES to how many machines to run on}"
  : "${GPUS:?set GPUS to how many GPUs each machine has}"
  : "${CLAIM:?set CLAIM to the PersistentVolumeClaim of the runs}"
  local arguments='' argument text
  for argument in "$@" --distributed; do
    argument=${argument//\\/\\\\}
    arguments+="${arguments:+, }\"${argument//\"/\\\"}\""
  done
  text=$(<"$(dirname "${BASH_SOURCE[0]}")/gke_jobset.yaml")
  # Quoted: bash 5.2 takes an & in a replacement for what was found.
  for pair in NAME="$NAME" IMAGE="$IMAGE" NODES="$NODES" GPUS="$GPUS" CLAIM="$CLAIM" \
    RESTARTS="${RESTARTS:-10}" ARGUMENTS="[$arguments]"; do
    text=${text//"\${${pair%%=*}}"/"${pair#*=}"}
  done
  printf '%s\n' "$text"
}

case $action in
print) render "$@" ;;
apply) render "$@" | kubectl apply -f - ;;
logs) kubectl logs --follow -l "jobset.sigs.k8s.io/jobset-name=$NAME" --prefix ;;
delete) kubectl delete jobset "$NAME" ;;
*)
  echo "$0 ${action:-?}: must be print, apply ARGUMENTS, logs or delete" >&2
  exit 2
  ;;
esac
