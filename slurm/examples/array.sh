#!/bin/bash
# A campaign in parts, one after the other (%1): a task of the array is a shard.
#   sbatch array.sh mine.yaml mine-out
# There must be at least as many tasks as pairs of storage system and number of client nodes
# (fsmatrix says so).  A task that was lost: submit the array again, what is stored is not run again.
# `fsmatrix submit` does all this by itself, and spreads the blocks over its jobs.
#SBATCH --job-name=fsmatrix-array
#SBATCH --array=1-2%1
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --output=fsmatrix-%A_%a.log
#SBATCH --signal=B:USR1@180
#SBATCH --requeue
#SBATCH --open-mode=append

set -e
exec fsmatrix run "${1:?name a campaign}" -o "${2:?and a results directory}" --resume --requeue \
  --quiet --shard "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT"
