#!/bin/bash
# fsmatrix: campaign two-systems, merges its runs and writes report.html
#
# Written by `fsmatrix submit`; it also runs by hand: cd here, then sbatch collect.sh
#SBATCH --job-name=fsmatrix-collect-two-systems
#SBATCH --comment=fsmatrix:0a1b2c3d:collect
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --time=0-01:30:00
#SBATCH --output=collect-%j.log
#SBATCH --open-mode=append
#SBATCH --mail-user=me@example.org
#SBATCH --mail-type=END,FAIL
#SBATCH --nice

set -e

# Lmod and Environment Modules are shell functions that login shells define
type module > /dev/null 2>&1 || . /etc/profile
module load miniforge

eval "$(conda shell.bash hook)"
conda activate 'fsm env'

export NOTE='a "b" $(c) `d`'
export OMP_NUM_THREADS=1

cd /home/me
exec fsmatrix report /scratch/me/out
