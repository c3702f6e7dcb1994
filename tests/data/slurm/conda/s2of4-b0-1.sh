#!/bin/bash
# fsmatrix: campaign two-systems, blocks 0 to 1
# 8 runs on storage system ceph-a from 4 client nodes x up to 8 processes, about 61 s
#
# Written by `fsmatrix submit`; it also runs by hand: cd here, then sbatch s2of4-b0-1.sh
#SBATCH --job-name=fsmatrix-ceph-a-1
#SBATCH --comment=fsmatrix:0a1b2c3d:s2of4-b0-1
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=1
#SBATCH --time=0-01:30:00
#SBATCH --output=s2of4-b0-1-%j.log
#SBATCH --open-mode=append
#SBATCH --dependency=singleton
#SBATCH --signal=B:USR1@130
#SBATCH --requeue
#SBATCH --constraint="haswell|knl"
#SBATCH --mail-user=me@example.org
#SBATCH --mail-type=END,FAIL
#SBATCH --mem=0
#SBATCH --nice

set -e

# Lmod and Environment Modules are shell functions that login shells define
type module > /dev/null 2>&1 || . /etc/profile
module load miniforge

eval "$(conda shell.bash hook)"
conda activate 'fsm env'

export FSMATRIX_PARALLEL_JOBS=2
export NOTE='a "b" $(c) `d`'
export OMP_NUM_THREADS=1

cd /home/me
# exec: the warning before the limit (SIGUSR1) reaches fsmatrix, which then ends its run cleanly
exec fsmatrix run -o /scratch/me/out --resume --shard 2/4 --blocks 0-1 --requeue --quiet
