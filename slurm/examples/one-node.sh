#!/bin/bash
# One node: the local file systems of a compute node, or a directory that it mounts.
#   sbatch one-node.sh                       # the ready campaign quickstart
#   sbatch one-node.sh mine.yaml mine-out    # your own
# Submit it again to go on where it stopped; when it is done: fsmatrix report quickstart-out
#SBATCH --job-name=fsmatrix-one-node
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --exclusive
#SBATCH --time=02:00:00
#SBATCH --output=fsmatrix-%j.log
# three minutes before the limit fsmatrix ends its run, unmounts, and queues the job again
#SBATCH --signal=B:USR1@180
#SBATCH --requeue
#SBATCH --open-mode=append

set -e
campaign=${1:-quickstart}
out=${2:-${campaign%.yaml}-out}

# module load openmpi           # your site's MPI
# . ~/fsmatrix/bin/activate     # where fsmatrix is installed

# exec, so that Slurm's signal reaches fsmatrix and not the shell
exec fsmatrix run "$campaign" -o "$out" --resume --requeue --quiet
