#!/usr/bin/env bash
# Prepares a text as SLURM jobs: an array of PARTS tasks tokenizes a part each, then one
# job merges the parts if all have succeeded.
#
#   PARTS=64 launch/prepare_slurm.sh --time=4:00:00 --cpus-per-task=16 -- \
#     --config FILE --data /data/text --to /data/stores/text
#
# The options before -- are sbatch's for each job, those after it jaxpt prepare's. LIMIT=8
# prepares at most 8 parts at once. The current folder, the text and --to must be on a disk
# that all machines share, or URLs of an object store. A tokenizer must exist: name its
# file, or train it with `jaxpt tokenizer train`. SLURM requeues a part whose machine is
# lost, which begins again. Calling it again repeats nothing that is finished.
#SBATCH --job-name=jaxpt-prepare
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
set -euo pipefail
shopt -s inherit_errexit # a job that is refused ends this script, too

# SLURM runs a copy of this script, from another folder.
root=$(cd "${JAXPT_LAUNCH:-$(dirname "${BASH_SOURCE[0]}")}/.." && pwd)
# shellcheck source-path=SCRIPTDIR source=slurm_jobs.sh
source "$root/launch/slurm_jobs.sh"

submit_all() {
  read_options "--data TEXT --to FOLDER" "$@"
  set -- ${arguments[@]+"${arguments[@]}"}
  : "${PARTS:?set PARTS to how many tasks share the text}"
  prepare_jobs "$root" "on one machine: jaxpt prepare without --part"
  export PARTS
  local job=$root/launch/prepare_slurm.sh parts merged
  parts=$(submit part --array="0-$((PARTS - 1))${LIMIT:+%$LIMIT}" "$job" "$@")
  merged=$(submit merge --dependency="afterok:$parts" "$job" "$@")
  echo "jobs: $parts prepares $PARTS parts, $merged merges them"
}

work() {
  cd "${SLURM_SUBMIT_DIR:?start this without sbatch, as its header says}"
  find_jaxpt "$SLURM_SUBMIT_DIR"
  case $JAXPT_PART in
  part) exec srun "$jaxpt" prepare "$@" --part="$SLURM_ARRAY_TASK_ID/$PARTS" ;;
  merge) exec srun "$jaxpt" prepare "$@" --merge="$PARTS" ;;
  esac
}

if [ -n "${JAXPT_PART:-}" ]; then work "$@"; else submit_all "$@"; fi
