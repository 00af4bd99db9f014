#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# UCX over weft_nvl between two pods on real GPUs, beside stock UCX: first
# whether the driver, UCX and weft each work by themselves, then every byte at
# every size, then speed, arms interleaved. Prints a table; ucx_pods.json,
# ucx_pods.log and crash.txt lie in $OUT, or in ./out.
#
#   tests/gpu/ucx_pods.sh ARCHIVE
#
# ARCHIVE is ucx.tar.xz of tests/gpu/carry.sh. Needs root, for namespaces, and
# a GPU; with one GPU both pods use it. UCX_PODS_DRIVER names a folder with a
# fake libcuda.so.1 for a dry run.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
test $# = 1 || { sed -n 's/^# \{0,1\}//;3,12p' "$0" >&2; exit 2; }
out=${OUT:-$PWD/out}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
tmp=$(mktemp -d) && chmod 755 "$tmp" || exit 2
trap 'rm -rf "$tmp"' EXIT
python3 -m tarfile -e "$1" "$tmp/kit" || exit 2
gpu=$tmp/kit/bin/gpu
pod=$tmp/kit/bin/pod
json=$out/ucx_pods.json
log=$out/ucx_pods.log
crash=$out/crash.txt
: >"$json" >"$log" >"$crash"
failed=0

driver=${UCX_PODS_DRIVER-}
largest=1024 some=64 total=4096
if test -n "$driver"; then
	largest=4 some=2 total=8
	export WEFT_LIBCUDA=$driver/libcuda.so.1 UCX_MEMTYPE_CACHE=n
fi
mkdir "$tmp/run"
export WEFT_RUN_DIR=$tmp/run UCX_WARN_UNUSED_ENV_VARS=n
# the program's own handler tells more than UCX's
export UCX_HANDLE_ERRORS=none EXCHANGE_ALARM=60

libraries() # VERSION
{
	echo "$tmp/kit/ucx-$1/libucx/lib${driver:+:$driver}"
}

say() { printf '%s\n' "$*" | tee -a "$log"; }

# Where a step died: once more under a debugger, where there is one.
look() # NAME COMMAND...
{
	local name=$1 gdb
	shift
	{ echo "=== $name: $*"; cat "$tmp/one" "$tmp/two" 2>/dev/null |
		grep -v '^[0-9a-f]*-[0-9a-f]* [-r]' | tail -60; } >>"$crash"
	grep -hE 'exchange:|gpu:|^/|ERROR|WARN|error|cannot' "$tmp/one" \
		"$tmp/two" 2>/dev/null | tail -12 | sed 's/^/    /' |
		tee -a "$log"
	for gdb in gdb cuda-gdb; do
		command -v $gdb >/dev/null || continue
		timeout 25 $gdb -q -batch -ex 'handle SIGUSR1 nostop noprint' \
			-ex run -ex 'bt 30' -ex 'x/3i $pc' \
			-ex 'info sharedlibrary' --args "$@" 2>&1 |
			tail -80 >>"$crash"
		break
	done
	grep -E '^#[0-9]+ ' "$crash" | tail -12 | sed 's/^/    /'
}

# One process; what it says is in $tmp/one.
alone() # NAME VERSION COMMAND...
{
	local name=$1 v=$2 rc
	shift 2
	rm -f "$tmp/two"
	LD_LIBRARY_PATH=$(libraries "$v") timeout 30 "$@" >"$tmp/one" 2>&1
	rc=$?
	{ echo "--- $name"; head -c 20000 "$tmp/one"; } >>"$log"
	if test $rc = 0; then
		say "ok      $name"
	else
		say "FAILED  $name (exit code $rc)"
		failed=1
		LD_LIBRARY_PATH=$(libraries "$v") look "$name" "$@"
	fi
}

# Two processes of `gpu`, each with a GPU of its own. PLACE is "here" (shared
# namespaces), "net" (pods on the host's network), "pods" (networks of their own)
# or "hidden" (pods that have the device node of their own GPU alone).
two() # NAME VERSION PLACE TLS SECONDS ARGUMENT...
{
	local name=$1 v=$2 place=$3 tls=$4 limit=$5 a=() b=() pid rc rc2
	local env=(env LD_LIBRARY_PATH="$(libraries "$v")" UCX_TLS="$tls")
	shift 5
	case $tls in
	*weft*)	env+=(LD_PRELOAD="$tmp/kit/weft/libweft_preload.so"
			WEFT_STATS="$tmp/stats") ;;
	esac
	case $place in
	net)	a=("$pod" -n pod0) b=("$pod" -n pod1) ;;
	pods)	a=("$pod" pod0) b=("$pod" pod1) ;;
	hidden)	a=(env POD_GPU=0 "$here/pod.sh" pod0)
		b=(env POD_GPU=1 "$here/pod.sh" pod1) ;;
	esac
	rm -f "$tmp/stats" "$tmp/meet"
	timeout -k 5 "$limit" "${a[@]}" "${env[@]}" "$gpu" wait "$tmp/meet" \
		gpu=0 "$@" >"$tmp/one" 2>&1 &
	pid=$!
	timeout -k 5 "$limit" "${b[@]}" "${env[@]}" "$gpu" come "$tmp/meet" \
		gpu=1 "$@" >"$tmp/two" 2>&1
	rc=$?
	wait $pid
	rc2=$?
	{ echo "--- $name"; head -c 20000 "$tmp/one"; echo "--- and";
	  head -c 6000 "$tmp/two"; cat "$tmp/stats" 2>/dev/null; } >>"$log"
	if test $rc = 0 && test $rc2 = 0; then
		say "ok      $name"
		return 0
	fi
	say "FAILED  $name (exit codes $rc2, $rc)"
	failed=1
	# a debugger cannot play both sides: setting up is looked at alone
	look "$name" "${env[@]}" "$gpu" gpu=0 setup
	return 1
}

carried() # by weft_nvl, bytes
{
	sed -n 's/.*"weft":"nvlink".*"tx_put_bytes":\([0-9]*\).*"get_bytes":\([0-9]*\).*/\1 \2/p' \
		"$tmp/stats" 2>/dev/null | awk '{ n += $1 + $2 } END { print n + 0 }'
}

speed() # ARM VERSION PLACE TLS MAX TOTAL
{
	local arm=$1 v=$2 place=$3 tls=$4
	two "speed: $arm, UCX $v" "$v" "$place" "$tls" 40 max="$5" total="$6" \
		speed || return
	grep '^{' "$tmp/one" | sed "s/^{/{\"arm\":\"$arm\",\"ucx\":\"$v\",/" \
		>>"$json"
	case $tls in
	*weft*)	say "        weft_nvl carried $(carried) bytes" ;;
	esac
}

weft=weft_nvl,weft_tcp,cuda_copy
ipc=cuda_ipc,cuda_copy,posix,self

say "1. Each by itself"
alone "the driver, no UCX loaded" none "$tmp/kit/bin/probe"
for v in 1.22.0 1.21.0; do
	alone "UCX $v loads" $v "$gpu" driver
	UCX_TLS=cuda_copy,posix,self alone "UCX $v is set up" $v "$gpu" setup
	UCX_TLS=$weft alone "UCX $v is set up with weft" $v \
		env LD_PRELOAD="$tmp/kit/weft/libweft_preload.so" "$gpu" setup
done
test -n "$driver" ||
	two "stock cuda_ipc, values" 1.22.0 here $ipc 30 max=1 values
say "2. Every byte"
for v in 1.22.0 1.21.0; do
	two "weft, pods, UCX $v" $v pods $weft 40 peer max=$some values
	say "        weft_nvl carried $(carried) bytes"
	two "weft, pods on one network, socket address, UCX $v" $v net $weft \
		30 sock peer block max=1 values
done
two "4,000 messages" 1.22.0 pods $weft 40 max=$some many
two "weft_nvl alone, pods" 1.22.0 pods weft_nvl,cuda_copy 30 max=1 values
two "lanes" 1.22.0 pods $weft 20 lanes &&
	grep lane "$tmp/one" | tee -a "$log"
say "3. Speed"
for round in 1 2; do
	speed weft 1.22.0 pods $weft $largest $total
	test -n "$driver" ||
		speed cuda_ipc 1.22.0 here $ipc $largest $total
	test $round = 2 ||
		speed tcp 1.22.0 net tcp,cuda_copy,self $some 64
	speed weft 1.21.0 pods $weft $largest $total
	test -n "$driver" || test $round = 2 ||
		speed cuda_ipc 1.21.0 here $ipc $largest $total
done
if test -z "$driver" && test -e /dev/nvidia0 && test -e /dev/nvidia1; then
	two "weft, pods without the other's device node, values" 1.22.0 hidden \
		$weft 40 max=$some values &&
		grep -h 'weft:' "$tmp/one" "$tmp/two" | tee -a "$log"
	speed hidden 1.22.0 hidden $weft $some 1024
fi
python3 "$here/ucx_table.py" "$json" | tee -a "$log"
test $failed = 0 && echo "every value right" || echo "some steps failed"
exit $failed
