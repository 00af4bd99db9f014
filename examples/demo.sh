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
weft=${WEFT_BUILD:+$WEFT_BUILD/tools/weft}
weft=${weft:-$(command -v weft)} ||
	{ echo "demo: no weft command: set WEFT_BUILD, or install weft" >&2; exit 1; }
bin=${WEFT_VENV:+$WEFT_VENV/bin/}
"${bin}python3" -c 'import distributed_ucxx, numpy' 2>/dev/null ||
	{ echo "demo: ${bin}python3 has no distributed_ucxx: set WEFT_VENV" >&2; exit 1; }

folder=$(mktemp -d "${TMPDIR:-/tmp}/weft-demo.XXXXXX")
pids=()
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

say() # TEXT
{
	echo "$1"
	said=$SECONDS
}

progress() # so that a user never waits more than five seconds
{
	test $((SECONDS - said)) -lt 4 || say "    $SECONDS s"
}

cluster() # ARM PROTOCOL COMMAND-PREFIX...: runs the program on a cluster
{
	local arm=$1 protocol=$2 dir=$folder/$1
	shift 2
	mkdir -p "$dir"
	rm -f "$dir/scheduler.json"
	start scheduler "$@" "${bin}python3" -m dask scheduler --protocol "$protocol" \
		--host 127.0.0.1 --port 0 --no-dashboard \
		--scheduler-file "$dir/scheduler.json"
	for n in 1 2; do
		start worker$n "$@" "${bin}python3" -m dask worker --host 127.0.0.1 \
			--scheduler-file "$dir/scheduler.json" --name worker$n \
			--nthreads 1 --no-nanny --no-dashboard --memory-limit 0 \
			--local-directory "$dir" --death-timeout 60
	done
	timeout 300 "$@" "${bin}python3" "$here/demo.py" "$dir/scheduler.json" "$size" \
		$((size / 4)) "$runs" >>"$dir/result" 2>"$dir/client.log" &
	pids+=($!)
	while kill -0 $! 2>/dev/null; do
		progress
		sleep 0.2
	done
	wait $! || {
		cat "$dir"/*.log >&2
		echo "demo: the program failed over $arm" >&2
		exit 1
	}
	stop
}

start() # NAME COMMAND...
{
	local log=$dir/$1.log
	shift
	"$@" >>"$log" 2>&1 </dev/null &
	pids+=($!)
}

say "x + x.T, summed and checked: ${size} x ${size} doubles in 16 chunks, two workers, $(nproc) cores"
# In turn: what disturbs the machine disturbs all alike.
for ((round = 1; round <= rounds; round++)); do
	say "  round $round: Dask's tcp://"
	cluster dask-tcp tcp
	say "  round $round: ucxx:// with UCX's tcp"
	UCX_TLS=tcp cluster ucx-tcp ucxx
	say "  round $round: ucxx:// under weft run"
	WEFT_STATS="$folder/weft/counters.%p" cluster weft ucxx "$weft" run
done
"${bin}python3" "$here/report.py" "$folder"
