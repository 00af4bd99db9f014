#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs demo.py, an ordinary Dask program, on a cluster of a scheduler and two
# workers on this machine: over Dask's own tcp://, over ucxx:// with UCX's own
# tcp, and over ucxx:// with weft.  Prints how fast each was, and what carried
# the bytes.  It builds and installs nothing.
#
#   examples/demo.sh [SIZE [RUNS [ROUNDS]]]
#
# WEFT_BUILD: a build folder (else the installed `weft` is used).
# WEFT_VENV: a Python environment with distributed-ucxx and numpy (else the one
# whose python3 is found first).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
size=${1:-8000}
runs=${2:-6}
rounds=${3:-2}
chunk=$((size / 4))
weft=${WEFT_BUILD:+$WEFT_BUILD/tools/weft}
weft=${weft:-$(command -v weft)} ||
	{ echo "demo: no weft command: set WEFT_BUILD, or install weft" >&2; exit 1; }
bin=${WEFT_VENV:+$WEFT_VENV/bin/}
"${bin}python3" -c 'import distributed_ucxx, numpy' 2>/dev/null ||
	{ echo "demo: ${bin}python3 has no distributed_ucxx: set WEFT_VENV" >&2; exit 1; }

folder=$(mktemp -d "${TMPDIR:-/tmp}/weft-demo.XXXXXX")
pids=()
patience=300 # seconds for the runs of one cluster
arms=3 ended=0 what="" result="" begun=0
stop() # ends the workers, then the scheduler; each writes its counters
{
	local i tries
	for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
		kill "${pids[i]}" 2>/dev/null || continue
		for ((tries = 0; tries < 150; tries++)); do
			kill -0 "${pids[i]}" 2>/dev/null || break
			progress
			sleep 0.1
		done
		kill -9 "${pids[i]}" 2>/dev/null || true
	done
	wait "${pids[@]}" 2>/dev/null || true
	pids=()
}
trap 'stop; rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

# Nothing of the caller's may decide what is compared here.
for name in $(env | sed -n 's/^\(\(UCX\|UCXPY\|WEFT\|DASK\)_[A-Za-z0-9_]*\)=.*/\1/p'); do
	unset "$name"
done
export UCX_WARN_UNUSED_ENV_VARS=n

# On a terminal one line that rewrites itself; elsewhere a line when an arm ends.
progress()
{
	local line left done=0
	test -t 1 && test -n "$what" || return 0
	test ! -e "$result" || done=$(wc -l <"$result")
	line="  $what: run $((done < runs ? done + 1 : runs)) of $runs"
	line+=", $((SECONDS - begun)) s"
	# each as long as those that have ended
	if test $ended != 0; then
		left=$(((arms * rounds - ended) * begun / ended - SECONDS + begun))
		line+="; about $((left > 1 ? left : 1)) s to go"
	fi
	printf '\r\033[K%s' "$line"
}

cluster() # ARM PROTOCOL COMMAND-PREFIX...: runs the program on a cluster
{
	local dir=$folder/$1 protocol=$2 rc=0
	shift 2
	mkdir -p "$dir"
	if test -e "$dir/note"; then # it has failed, or is too slow
		ended=$((ended + 1))
		return
	fi
	rm -f "$dir/scheduler.json"
	result=$dir/result.$round begun=$SECONDS
	start scheduler "$@" "${bin}python3" -m dask scheduler --protocol "$protocol" \
		--host 127.0.0.1 --port 0 --no-dashboard \
		--scheduler-file "$dir/scheduler.json"
	for n in 1 2; do
		start worker$n "$@" "${bin}python3" -m dask worker --host 127.0.0.1 \
			--scheduler-file "$dir/scheduler.json" --name worker$n \
			--nthreads 1 --no-nanny --no-dashboard --memory-limit 0 \
			--local-directory "$dir" --death-timeout 60
	done
	timeout "$patience" "$@" "${bin}python3" "$here/demo.py" \
		"$dir/scheduler.json" "$size" $chunk "$runs" \
		>"$result" 2>"$dir/client.log" &
	pids+=($!)
	while kill -0 $! 2>/dev/null; do
		progress
		sleep 0.2
	done
	wait $! || rc=$?
	stop
	test ! -t 1 || printf '\r\033[K'
	case $rc in
	0)	echo "  $what: $((SECONDS - begun)) s" ;;
	124)	echo "slow: stopped after $patience s" >"$dir/note"
		echo "  $what: too slow here, stopped after $patience s"
		test "$size $runs" = "4000 3" ||
			echo "    try a smaller one: ./quickstart demo 4000 3 1" ;;
	*)	echo "failed" >"$dir/note"
		echo "  $what: FAILED" >&2
		grep -hv ' - INFO - ' "$dir"/*.log | tail -15 | sed 's/^/    /' >&2 ;;
	esac
	ended=$((ended + 1))
}

start() # NAME COMMAND...
{
	local log=$dir/$1.log
	shift
	"$@" >>"$log" 2>&1 </dev/null &
	pids+=($!)
}

side=$(((size + chunk - 1) / chunk))
echo "x + x.T, summed and checked: $size x $size doubles in $((side * side)) chunks, two workers"
cut -d ' ' -f 1 /proc/loadavg >"$folder/load" # before this adds to it
# In turn: what disturbs the machine disturbs all alike.
for ((round = 1; round <= rounds; round++)); do
	what="round $round of $rounds, Dask's tcp://"
	cluster dask-tcp tcp
	what="round $round of $rounds, ucxx:// with UCX's tcp"
	UCX_TLS=tcp cluster ucx-tcp ucxx
	what="round $round of $rounds, ucxx:// under weft run"
	WEFT_STATS="$folder/weft/counters.%p" cluster weft ucxx "$weft" run
done
what=""
"${bin}python3" "$here/report.py" "$folder"
