#!/bin/bash
# Trains on two hosts of eight GPUs, a process for each GPU: sbatch slurm.sh
# The folder that it is submitted from is one that all hosts share: model.pb is read there, and checkpoints are saved there.
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append

# Slurm itself starts the job again where it is preempted or a host fails. --signal lets the processes save before the time is up;
# they exit with 143, and the job goes on from there. Any other failure ends it.
code=0
srun --kill-on-bad-exit=1 --wait=60 tpugraph run model.pb --distributed=auto --connect_timeout=600 --platform=gpu --mesh=data:16 \
  --shard_optimizer=data --max_steps=100000 --model_dir=out --save_steps=1000 || code=$?
if [ "$code" = 143 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
