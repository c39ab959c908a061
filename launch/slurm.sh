#!/usr/bin/env bash
# Runs jaxpt as a SLURM job: one process per GPU, on one or several machines.
#
#   sbatch --nodes=2 --ntasks-per-node=8 --gpus-per-node=8 --time=24:00:00 \
#     launch/slurm.sh train --config configs/quickstart.py --config.objective=mlm --workdir runs/mlm
#
# The arguments are jaxpt's. The working directory and the folder that sbatch is called in
# must be on a disk that all machines share. Two minutes before the time limit the run
# saves and stops; with `sbatch --export=ALL,REQUEUE=1` it is requeued and resumes. JAX
# finds the processes by SLURM's variables.
#SBATCH --job-name=jaxpt
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=TERM@120
set -euo pipefail

# SLURM runs a copy of this file from elsewhere.
root=${SLURM_SUBMIT_DIR:?start this with sbatch, as its header says}
jaxpt=${JAXPT:-$root/.venv/bin/jaxpt}
if ! command -v "$jaxpt" >/dev/null; then
  echo "JAXPT=$jaxpt: not found; run 'make quickstart' or name jaxpt's path" >&2
  exit 2
fi
cd "$root"
code=0
srun --kill-on-bad-exit=1 "$jaxpt" "$@" --distributed || code=$?
if [ "$code" = 143 ] && [ -n "${REQUEUE:-}" ]; then
  exec scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
