#!/usr/bin/env bash
# Runs a comparison as SLURM jobs: one plans the runs, an array trains them (a task for
# each run), and one writes the report if all have succeeded.
#
#   launch/compare_slurm.sh --time=4:00:00 --gpus=1 -- \
#     --config configs/quickstart.py --workdir runs/slurm
#
# The options before -- are sbatch's for each job, those after it jaxpt compare's. LIMIT=8
# trains at most 8 runs at once. The current folder and the working directory must be on
# a disk that all machines share. SLURM requeues a run whose machine is lost, and it
# resumes from its last checkpoint; with REQUEUE=1 also a run that is out of time.
# Calling it again repeats nothing that is finished.
#SBATCH --job-name=jaxpt-compare
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=TERM@120
set -euo pipefail
shopt -s inherit_errexit # a job that is refused ends this script, too

find_jaxpt() {
  jaxpt=${JAXPT:-$1/.venv/bin/jaxpt}
  if ! command -v "$jaxpt" >/dev/null; then
    echo "JAXPT=$jaxpt: not found; run 'make quickstart' or name jaxpt's path" >&2
    exit 2
  fi
}

submit() {
  local part=$1 id
  shift
  id=$(sbatch --parsable ${options[@]+"${options[@]}"} --kill-on-invalid-dep=yes \
    --export=ALL,JAXPT_PART="$part" "$@")
  echo "${id%%;*}"
}

submit_all() {
  options=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  if [ "${1:-}" != -- ]; then
    echo "$0: must be SBATCH OPTIONS -- --config FILE --workdir DIR" >&2
    exit 2
  fi
  shift
  local root number prepared trained reported
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
  find_jaxpt "$root"
  if ! command -v sbatch >/dev/null; then
    echo "sbatch: not found; on a machine without SLURM: launch/compare_gpus.sh" >&2
    exit 2
  fi
  export JAXPT=$jaxpt
  number=$("$jaxpt" compare "$@" --part=list | grep -c -- '-seed[0-9]*$')
  local job=$root/launch/compare_slurm.sh
  prepared=$(submit prepare "$job" "$@")
  trained=$(submit runs --dependency="afterok:$prepared" \
    --array="0-$((number - 1))${LIMIT:+%$LIMIT}" "$job" "$@")
  reported=$(submit report --dependency="afterok:$trained" "$job" "$@")
  echo "jobs: $prepared prepares, $trained trains $number runs, $reported reports"
}

work() {
  cd "${SLURM_SUBMIT_DIR:?start this without sbatch, as its header says}"
  find_jaxpt "$SLURM_SUBMIT_DIR"
  local arguments=(compare "$@" --part="$JAXPT_PART") code=0
  if [ "$JAXPT_PART" = runs ]; then
    arguments+=(--run_index="$SLURM_ARRAY_TASK_ID")
  fi
  if [ "${SLURM_NTASKS:-1}" -gt 1 ]; then arguments+=(--distributed); fi
  srun --kill-on-bad-exit=1 "$jaxpt" "${arguments[@]}" || code=$?
  if [ "$code" = 143 ] && [ -n "${REQUEUE:-}" ]; then
    exec scontrol requeue "$SLURM_JOB_ID"
  fi
  exit "$code"
}

if [ -n "${JAXPT_PART:-}" ]; then work "$@"; else submit_all "$@"; fi
