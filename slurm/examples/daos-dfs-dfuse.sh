#!/bin/bash
# DAOS: libdfs against DFUSE, pool and mount from the environment, 4 nodes x 8 processes, IOR.
#   DAOS_POOL=mine DFUSE=/mnt/dfuse/me sbatch daos-dfs-dfuse.sh
# DFUSE is the mount of a container of that pool on all nodes (dfuse /mnt/dfuse $DAOS_POOL $DAOS_CONT);
# for DFS the suite makes a container of its own in the pool, and destroys it.
# Both are ways to one system: they stand in one campaign, and follow each other in one job.
#SBATCH --job-name=fsmatrix-daos
#SBATCH --dependency=singleton
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --output=fsmatrix-%j.log
#SBATCH --signal=B:USR1@900
#SBATCH --requeue
#SBATCH --open-mode=append

set -e
: "${DAOS_POOL:?say which pool: DAOS_POOL=mine DFUSE=/mnt/dfuse/me sbatch daos-dfs-dfuse.sh}"
: "${DFUSE:?say where DFUSE is mounted: DAOS_POOL=mine DFUSE=/mnt/dfuse/me sbatch daos-dfs-dfuse.sh}"
out=${OUT:-daos-out}
campaign=${CAMPAIGN:-daos-dfs-dfuse.yaml}   # beside this script; copy and change it

# module load ior daos
export D_LOG_FILE=${TMPDIR:-/tmp}/daos-client.log DD_STDERR=CRIT   # else clients print on stdout

exec fsmatrix run "$campaign" -o "$out" --resume --requeue --quiet \
  --set "geometry.nodes=$SLURM_JOB_NUM_NODES" \
  --set "geometry.processes_per_node=$SLURM_NTASKS_PER_NODE" \
  --set "targets.dfs.options.pool=$DAOS_POOL" \
  --set "targets.dfuse.options.path=$DFUSE"
