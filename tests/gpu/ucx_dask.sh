#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Unchanged Dask over ucxx on real GPUs: the transpose and sum of a cupy array, a
# shuffle by value and more (ucx_dask.py), every element checked, on `dask cuda
# worker`s in two pods or one container and on a LocalCUDACluster, with weft and
# without, with a pool of memory and without, where they must spill, beside a
# worker that has no GPU, and on eight workers, several of them on a GPU; weft_nvl
# must have moved what Dask counts, and no byte twice. Prints a table;
# ucx_dask.json and ucx_dask.log lie in $OUT, or in ./out.
#
#   tests/gpu/ucx_dask.sh UCX-ARCHIVE DASK-ARCHIVE
#
# Both are of tests/gpu/carry.sh. Needs root and a python3 (3.12) with cupy; with
# one GPU both workers use it. For a dry run without one: UCX_PODS_DRIVER as in
# ucx_pods.sh, UCX_DASK_NUMPY=1, UCX_DASK_SITE a folder with numpy, PYTHON.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
test $# = 2 || { sed -n 's/^# \{0,1\}//;3,16p' "$0" >&2; exit 2; }
out=${OUT:-$PWD/out}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
tmp=$(mktemp -d) && chmod 755 "$tmp" || exit 2
trap 'rm -rf "$tmp"' EXIT
python=${PYTHON:-python3}
python3 -m tarfile -e "$1" "$tmp/kit" || exit 2
python3 -m tarfile -e "$2" "$tmp/dask" || exit 2
export PYTHONPATH=$tmp/dask/site${UCX_DASK_SITE:+:$UCX_DASK_SITE}
export PYTHONUNBUFFERED=1
json=$out/ucx_dask.json
log=$out/ucx_dask.log
: >"$json" >"$log"
failed=0
sent=0

# `weft run` looks for its libraries where make install puts them.
mkdir -p "$tmp/weft/bin" "$tmp/weft/lib/ucx"
cp "$tmp/kit/bin/weft" "$tmp/weft/bin"
cp "$tmp/kit"/weft/libweft_preload.so "$tmp/weft/lib"
cp "$tmp/kit/weft/libuct_weft.so" "$tmp/weft/lib/ucx"
mkdir "$tmp/run"
export WEFT_RUN_DIR=$tmp/run UCX_WARN_UNUSED_ENV_VARS=n
export DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT=30s
driver=${UCX_PODS_DRIVER-}
gpus=1
stock=tcp,cuda_copy
if test -n "$driver"; then
	# Dask makes a context for a list with "cuda" in it, by way of NVML
	export LD_LIBRARY_PATH=$driver WEFT_LIBCUDA=$driver/libcuda.so.1
	export UCX_TLS=all
	export DASK_DISTRIBUTED__DIAGNOSTICS__NVML=False
	stock=tcp
	plain=(-m distributed.cli.dask_worker --nthreads 1 --no-nanny)
	worker=("${plain[@]}")
	pool=() limit=()
else
	gpus=$(nvidia-smi -L | wc -l)
	plain=(-m distributed.cli.dask_worker --nthreads 1 --no-nanny)
	worker=(-m dask_cuda.cli worker)
	pool=(--rmm-pool-size 6GB) limit=(--device-memory-limit 1GB)
fi

# What NVLink's own counters say that all GPUs sent, in MB.
nvlink_mb()
{
	test -n "$driver" || nvidia-smi nvlink -gt d 2>/dev/null |
		awk '/Data Tx:/ { n += $(NF - 1) } END { printf "%d", n / 1000 * 1.024 }'
}

say() { printf '%s\n' "$*" | tee -a "$log"; }

# What all arms of a name have in common.
environment() # ARM: sets env
{
	env=(env)
	case $1 in
	*weft*)	env+=(WEFT_STATS="$tmp/stats.%p"
			"$tmp/weft/bin/weft" run) ;;
	*tcp*)	env+=(UCX_TLS="$stock") ;;
	esac
}

on_wire() # DEVICE: bytes that it sent, all processes
{
	cat "$tmp"/stats.* 2>/dev/null |
		sed -n "s/.*\"weft\":\"$1\".*\"wire_tx_bytes\":\([0-9]*\).*/\1/p" |
		awk '{ n += $1 } END { print n + 0 }'
}

by_nvlink() # COUNTER: all processes
{
	cat "$tmp"/stats.* 2>/dev/null |
		sed -n "s/.*\"weft\":\"nvlink\".*\"$1\":\([0-9]*\).*/\1/p" |
		awk '{ n += $1 } END { print n + 0 }'
}

finish() # ARM EXIT-CODE
{
	local arm=$1 rc=$2 by_nvl due
	{ for file in "$tmp"/*.out; do echo "--- $arm: $file"; tail -c 6000 "$file"
	done; cat "$tmp"/stats.* 2>/dev/null; } >>"$log"
	if test "$rc" = 0; then
		grep '^{' "$tmp/client.out" | while read -r line; do
			say "ok      $line"
		done
		grep '^{' "$tmp/client.out" >>"$json"
	else
		say "FAILED  $arm (exit code $rc)"
		tail -n 15 "$tmp"/*.out | sed 's/^/    /'
		failed=1
	fi
	case $arm in
	*weft*)	by_nvl=$(($(by_nvlink tx_put_bytes) + $(by_nvlink get_bytes)))
		say "        weft_nvl moved $by_nvl bytes, weft_shm $(on_wire shm)," \
			"weft_tcp $(on_wire tcp), NVLink itself" \
			"$(($(nvlink_mb) - sent)) MB"
		# what Dask fetched of GPUs, no byte twice
		due=$(sed -n 's/.*"gpu_bytes": \([0-9]*\).*/\1/p' \
			"$tmp/client.out")
		if test -n "$due" && { test "$by_nvl" -lt $((due / 1000 * 999)) ||
			test "$by_nvl" -gt $((due / 10 * 12)); }; then
			say "FAILED  $arm: weft_nvl moved $by_nvl bytes of $due"
			failed=1
		fi ;;
	esac
	rm -f "$tmp"/*.out "$tmp"/stats.*
}

# Scheduler and client on the host, `workers` of them, each in a pod of its own or,
# where ARM has no pods, there, too; their options are in `options`. One more has no GPU where PROGRAM is mixed.
apart() # ARM PROGRAM...
{
	local arm=$1 pids=() n env rc pid pod total=$workers
	shift
	environment "$arm"
	sent=$(nvlink_mb)
	test "$1" != mixed || total=$((workers + 1))
	rm -f "$tmp/cluster.json"
	CUDA_VISIBLE_DEVICES=0 timeout -k 5 90 "${env[@]}" "$python" \
		-m distributed.cli.dask_scheduler --protocol ucxx --host 127.0.0.1 \
		--port 0 --no-dashboard --scheduler-file "$tmp/cluster.json" \
		>"$tmp/scheduler.out" 2>&1 &
	pids+=($!)
	for ((n = 0; n < 100; n++)); do
		test -e "$tmp/cluster.json" && break
		kill -0 $! 2>/dev/null || break
		sleep 0.3
	done
	if ! test -e "$tmp/cluster.json"; then
		kill $! 2>/dev/null
		wait $!
		finish "$arm" 1
		return
	fi
	for ((n = 0; n < total; n++)); do
		local devices=$((n % gpus)) nvml=${DASK_DISTRIBUTED__DIAGNOSTICS__NVML:-True}
		local command=("${worker[@]}" "${options[@]}")
		# Dask's look at the GPU fails where none is visible
		test $n -lt "$workers" || {
			devices=-1 nvml=False
			command=("${plain[@]}" --name no-gpu)
		}
		pod=()
		test "$arm" = "${arm%pods*}" || pod=("$tmp/kit/bin/pod" -n pod$n)
		DASK_DISTRIBUTED__DIAGNOSTICS__NVML=$nvml \
			CUDA_VISIBLE_DEVICES=$devices timeout -k 5 90 \
			"${pod[@]}" "${env[@]}" "$python" \
			"${command[@]}" --scheduler-file "$tmp/cluster.json" \
			--host 127.0.0.1 --no-dashboard --death-timeout 30 \
			--local-directory "$tmp" >"$tmp/worker$n.out" 2>&1 &
		pids+=($!)
	done
	UCX_DASK_WORKERS=$total timeout -k 5 80 "${env[@]}" "$python" \
		"$here/ucx_dask.py" client "$tmp/cluster.json" "$arm" "$@" \
		>"$tmp/client.out" 2>&1
	rc=$?
	for pid in "${pids[@]}"; do
		test $rc = 0 || kill "$pid" 2>/dev/null
		wait "$pid"
	done
	finish "$arm" $rc
}

whole() # ARM POOL PROGRAM...
{
	local arm=$1 env
	environment "$arm"
	sent=$(nvlink_mb)
	timeout -k 5 80 "${env[@]}" "$python" "$here/ucx_dask.py" local "$@" \
		>"$tmp/client.out" 2>&1
	finish "$arm" $?
}

workers=2
options=("${pool[@]}")
apart "weft, two pods" transpose shuffle
apart "tcp, two pods" transpose shuffle
apart "weft, two pods and a worker without a GPU" mixed
if test -z "$driver"; then
	options=()
	apart "weft, two pods, no pool" uuids transpose shuffle
	export UCX_RNDV_SCHEME=put_ppln UCX_RNDV_FRAG_MEM_TYPES=cuda \
		UCX_RNDV_FRAG_SIZE=cuda:8M UCX_RNDV_PIPELINE_ERROR_HANDLING=y
	apart "weft, two pods, no pool, fragments" transpose shuffle
	unset UCX_RNDV_SCHEME UCX_RNDV_FRAG_MEM_TYPES UCX_RNDV_FRAG_SIZE \
		UCX_RNDV_PIPELINE_ERROR_HANDLING
	options=("${pool[@]}" "${limit[@]}")
	apart "weft, two pods, 1 GB of each GPU" spill
	whole "weft, LocalCUDACluster" 6GB transpose shuffle
	whole "stock, LocalCUDACluster" 6GB transpose shuffle
	whole "weft, LocalCUDACluster, no pool" "" transpose shuffle
	options=("${pool[@]}")
	apart "weft, one container" transpose shuffle
	options=() workers=8
	apart "weft, eight pods" transpose shuffle memory
	apart "tcp, eight pods" transpose shuffle memory
fi
exit $failed
