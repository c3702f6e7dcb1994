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
#SBATCH --partition=io
#SBATCH --account=storage

set -e

. '/apps/fs matrix/bin/activate'

cd /home/me
exec fsmatrix report /scratch/me/out
