#!/bin/bash
# fsmatrix: campaign two-systems, merges its runs and writes report.html
#
# Written by `fsmatrix submit`; it also runs by hand: cd here, then sbatch collect.sh
#SBATCH --job-name=fsmatrix-collect-two-systems
#SBATCH --comment=fsmatrix:0a1b2c3d:collect
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=1
#SBATCH --time=0-00:31:00
#SBATCH --output=collect-%j.log
#SBATCH --open-mode=append
#SBATCH --partition=standard
#SBATCH --qos=bench
#SBATCH --reservation="fs tests"
#SBATCH --hint=nomultithread

set -e

# Lmod and Environment Modules are shell functions that login shells define
type module > /dev/null 2>&1 || . /etc/profile
module load PrgEnv-gnu
module load cray-python

cd /home/me
exec fsmatrix report /scratch/me/out
