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

# SLURM runs a copy of this script, from another folder.
root=$(cd "${JAXPT_LAUNCH:-$(dirname "${BASH_SOURCE[0]}")}/.." && pwd)
# shellcheck source-path=SCRIPTDIR source=slurm_jobs.sh
source "$root/launch/slurm_jobs.sh"

submit_all() {
  read_options "--config FILE --workdir DIR" "$@"
  set -- ${arguments[@]+"${arguments[@]}"}
  prepare_jobs "$root" "on a machine without SLURM: launch/compare_gpus.sh"
  local number prepared trained reported
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
