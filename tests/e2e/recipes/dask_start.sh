#!/bin/bash -l
# SPDX-License-Identifier: BSD-3-Clause
# docs/recipes/pbs.md
# $1: GPUs, and so workers, of each node (default: 8)
module load compilers/openmpi
module load conda
module load weft
cd $PBS_O_WORKDIR

TMP_EXE=dask_start_worker.sh
cat > $TMP_EXE << EOF
#!/bin/bash
export PATH=$PATH
weft run -g 1 dask cuda worker \
  --device-memory-limit 40GB \
  --scheduler-file ~/scheduler.json \
  --protocol ucx \
  > dask_worker_\$HOSTNAME.\$\$.log 2>&1
EOF
chmod 755 $TMP_EXE

# start the scheduler
rm -f ~/scheduler.json
weft run dask scheduler --scheduler-file ~/scheduler.json --protocol ucx > dask_scheduler.log 2>&1 &

# start the workers
NUM_NODES=$(sort -u $PBS_NODEFILE | wc -l)
NRANKS_PER_NODE=${1:-8}
mpiexec -np $((NRANKS_PER_NODE*NUM_NODES)) ./$TMP_EXE

rm ./$TMP_EXE
wait
