#!/bin/bash
# CephFS that the nodes have mounted, from 8 nodes with 16 processes each.
#   CEPHFS=/mnt/cephfs/$USER sbatch cephfs-8x16.sh
# singleton: of your jobs with this name one runs at a time, since two would measure each other.
#SBATCH --job-name=fsmatrix-cephfs
#SBATCH --dependency=singleton
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=16
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --output=fsmatrix-%j.log
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append

set -e
: "${CEPHFS:?say where CephFS is mounted: CEPHFS=/mnt/cephfs/me sbatch cephfs-8x16.sh}"
out=${OUT:-cephfs-8x16-out}
campaign=${CAMPAIGN:-cephfs-8x16.yaml}   # beside this script; copy and change it

exec fsmatrix run "$campaign" -o "$out" --resume --requeue --quiet \
  --set "geometry.nodes=$SLURM_JOB_NUM_NODES" \
  --set "geometry.processes_per_node=$SLURM_NTASKS_PER_NODE" \
  --set "targets.cephfs.options.path=$CEPHFS"
