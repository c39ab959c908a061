#!/usr/bin/env bash
# launch/slurm_jobs.sh is not run: compare_slurm.sh and prepare_slurm.sh source it. Each of
# them both submits jobs and is the script of the jobs, which JAXPT_PART names.
# shellcheck disable=SC2034 # they use the variables

find_jaxpt() { # FOLDER OF THE CLONE
  jaxpt=${JAXPT:-$1/.venv/bin/jaxpt}
  if ! command -v "$jaxpt" >/dev/null; then
    echo "JAXPT=$jaxpt: not found; run 'make quickstart' or name jaxpt's path" >&2
    exit 2
  fi
}

# Sets `options` to those before --, and `arguments` to what follows it.
read_options() { # WHAT IS ALLOWED, ALL ARGUMENTS ...
  local allowed=$1
  shift
  options=() arguments=()
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  if [ "${1:-}" != -- ]; then
    echo "$0: must be SBATCH OPTIONS -- $allowed" >&2
    exit 2
  fi
  arguments=("${@:2}")
}

# Finds jaxpt and sbatch, for the jobs, too.
prepare_jobs() { # FOLDER OF THE CLONE, WHAT TO DO WITHOUT SLURM
  find_jaxpt "$1"
  if ! command -v sbatch >/dev/null; then
    echo "sbatch: not found; $2" >&2
    exit 2
  fi
  export JAXPT=$jaxpt JAXPT_LAUNCH=$1/launch
}

submit() { # PART, SBATCH OPTIONS, SCRIPT, ITS ARGUMENTS: prints the job's number
  local part=$1 id
  shift
  id=$(sbatch --parsable ${options[@]+"${options[@]}"} --kill-on-invalid-dep=yes \
    --export=ALL,JAXPT_PART="$part" "$@")
  echo "${id%%;*}"
}
