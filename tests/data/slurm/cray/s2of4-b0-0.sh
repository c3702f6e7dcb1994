#!/bin/bash
# fsmatrix: campaign two-systems, block 0
# 4 runs on storage system ceph-a from 4 client nodes x up to 8 processes, about 33 s
#
# Written by `fsmatrix submit`; it also runs by hand: cd here, then sbatch s2of4-b0-0.sh
#BB create_persistent name=bb1 capacity=1TB access=striped type=scratch
#DW jobdw type=scratch capacity=1TiB access_mode=striped
#SBATCH --job-name=fsmatrix-ceph-a
#SBATCH --comment=fsmatrix:0a1b2c3d:s2of4-b0-0
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=4
#SBATCH --time=0-00:14:00
#SBATCH --output=s2of4-b0-0-%j.log
#SBATCH --open-mode=append
#SBATCH --dependency=singleton
#SBATCH --signal=B:USR1@130
#SBATCH --requeue
#SBATCH --partition=standard
#SBATCH --qos=bench
#SBATCH --exclusive
#SBATCH --licenses=ceph_a@db:1
#SBATCH --reservation="fs tests"
#SBATCH --gres=craynetwork:1
#SBATCH --hint=nomultithread

set -e

# Lmod and Environment Modules are shell functions that login shells define
type module > /dev/null 2>&1 || . /etc/profile
module load PrgEnv-gnu
module load cray-python
module load cray-mpich/8.1

export FSMATRIX_PARALLEL_JOBS=1

cd /home/me
# exec: the warning before the limit (SIGUSR1) reaches fsmatrix, which then ends its run cleanly
exec fsmatrix run -o /scratch/me/out --resume --shard 2/4 --blocks 0-0 --requeue --quiet
