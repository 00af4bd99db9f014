# SPDX-License-Identifier: BSD-3-Clause
# For ucx_pods.sh here and in bench/gpu, sourced with NAME and an ARCHIVE, the
# ucx.tar.xz of tests/gpu/carry.sh: unpacks it into $tmp and runs `gpu` of it, one
# process or a pair in two pods. What goes wrong sets `failed`; NAME.log and
# crash.txt lie in $OUT, or in ./out.
pods=$root/tests/gpu
out=${OUT:-$PWD/out}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
tmp=$(mktemp -d) && chmod 755 "$tmp" || exit 2
trap 'rm -rf "$tmp"' EXIT
python3 -m tarfile -e "$2" "$tmp/kit" || exit 2
gpu=$tmp/kit/bin/gpu
pod=$tmp/kit/bin/pod
log=$out/$1.log
crash=$out/crash.txt
: >"$log" >"$crash"
failed=0

driver=${UCX_PODS_DRIVER-}
largest=1024 some=64 total=4096
if test -n "$driver"; then
	largest=4 some=2 total=8
	export WEFT_LIBCUDA=$driver/libcuda.so.1 UCX_MEMTYPE_CACHE=n
	export WEFT_TEST_CUDA_IPC=$tmp/ipc
fi
mkdir "$tmp/run" "$tmp/ipc"
export WEFT_RUN_DIR=$tmp/run UCX_WARN_UNUSED_ENV_VARS=n
# the program's own handler tells more than UCX's
export UCX_HANDLE_ERRORS=none EXCHANGE_ALARM=60

libraries() # VERSION
{
	echo "$tmp/kit/ucx-$1/libucx/lib${driver:+:$driver}"
}

say() { printf '%s\n' "$*" | tee -a "$log"; }

# Where a step died: again under a debugger, where there is one.
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
	hidden)	a=(env POD_GPU=0 "$pods/pod.sh" pod0)
		b=(env POD_GPU=1 "$pods/pod.sh" pod1) ;;
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
	# the one that comes kills itself there
	test "${*: -1}" != killed || test $rc != 137 || rc=0
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

of() # DEVICE COUNTER, both sides
{
	sed -n "s/.*\"weft\":\"$1\".*\"$2\":\([0-9]*\).*/\1/p" \
		"$tmp/stats" 2>/dev/null | awk '{ n += $1 } END { print n + 0 }'
}

# Two processes of one pid: what a handle of the driver's says of its maker.
equal_pids()
{
	local pids
	pids=$(sed -n 's/^gpu: pid \([0-9]*\)$/\1/p' "$tmp/one" "$tmp/two")
	test "$(wc -l <<<"$pids") $(uniq <<<"$pids" | wc -l)" = "2 1" && return
	say "FAILED  the pids are not equal:" $pids
	failed=1
}

moved() # DEVICE: bytes of puts and gets
{
	echo $(($(of "$1" tx_put_bytes) + $(of "$1" get_bytes)))
}

# No block went but by DEVICE.
all_by() # nvlink | shm
{
	local other=shm
	test "$1" = nvlink || other=nvlink
	test "$(moved "$1")" -gt 0 && test "$(moved $other)" = 0 && return
	say "FAILED  weft_nvl moved $(moved nvlink) bytes, weft_shm" \
		"$(moved shm): all by $1 was wanted"
	failed=1
}

weft=weft_nvl,weft_shm,cuda_copy
ipc=cuda_ipc,cuda_copy,posix,self
