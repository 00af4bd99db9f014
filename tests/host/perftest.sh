#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# UCX's own benchmark ends over weft, for every kind of transfer; no figure is
# judged here. (It checks no data: run.sh does.)  PORT, a verbs device's, takes
# weft_ib there, under the newest UCX and for little: tests/vm/ucx.sh does it.
. "$(dirname "$0")/common.sh"

tap_folder
find_builds
export UCX_TLS=weft_tcp UCX_NET_DEVICES=lo UCX_WARN_UNUSED_ENV_VARS=n
patience=60 less=1 sides=1 served=0
if test -n "${1-}"; then
	export UCX_TLS=weft_ib UCX_NET_DEVICES=$1
	versions=("${versions[-1]}")
	# of a READ that the other side makes the client's adapter does not tell
	patience=200 less=10 sides=2 served=$tap_tmp/stats
fi
# run.sh takes each release in every run
test -n "${WEFT_TEST_LONG-}" || test ${#versions[@]} -lt 4 ||
	versions=("${versions[0]}" "${versions[@]: -2}")
# below the ports that the kernel gives to clients: each connection of each test
# beside this one has one of those, for a minute after its end too
first=10000
last=$(awk '{ print $1 - 1 }' /proc/sys/net/ipv4/ip_local_port_range)
test "$last" -gt "$first" || last=32767
port=$((first + $$ % (last - first)))

# Starts the server on the next port that is free; sets pid. It says nothing
# when it listens, and ends when another has the port.
serve() # VERSION TOOL
{
	local tries i
	for ((tries = 0; tries < 20; tries++)); do
		port=$((port < last ? port + 1 : first))
		WEFT_STATS=$served under "$1" timeout $patience "$2" -p $port \
			>"$tap_tmp/server" 2>&1 &
		pid=$!
		for ((i = 0; i < 500; i++)); do
			grep -q "^ *[0-9]*: 00000000:$(printf %04X $port) .* 0A " \
				/proc/net/tcp && kill -0 $pid 2>/dev/null &&
				! grep -q "bind() failed" "$tap_tmp/server" &&
				return
			grep -q "bind() failed" "$tap_tmp/server" && break
			sleep 0.02
		done
		kill $pid 2>/dev/null
		wait $pid
	done
}

perftest() # VERSION TEST SIZE ITERATIONS
{
	local v=$1 tool=${prefix_of[$1]}/bin/ucx_perftest stats=$tap_tmp/stats
	local name="$1: $2 of $3 bytes" n=$(($4 / less)) pid rc bytes
	serve "$v" "$tool"
	: >"$stats"
	WEFT_STATS=$stats under "$v" timeout $patience "$tool" 127.0.0.1 -p $port \
		-t "$2" -s "$3" -n $n -w 10 >"$tap_tmp/client" 2>&1
	rc=$?
	wait $pid || rc=$?
	bytes=$(counter "$stats" wire_tx_bytes)
	bytes=$((bytes + $(counter "$stats" wire_rx_bytes)))
	if test $rc != 0 || ! grep -q Final: "$tap_tmp/client"; then
		tap_not_ok "$name" "$(cat "$tap_tmp/client" "$tap_tmp/server")"
	else
		between "$name, by weft" $(($3 * n)) "$bytes" \
			$((($3 + 1024) * (n + 10) * 3 * sides + 100000))
	fi
}

for v in "${versions[@]}"; do
	tool=${prefix_of[$v]}/bin/ucx_perftest
	if ! test -x "$tool" || ! PRELOAD=A=1 under "$v" "$tool" -h 2>/dev/null |
			grep -q tag_bw; then
		tap_skip "$v: ucx_perftest" "it does not start here"
		continue
	fi
	perftest "$v" tag_lat 8 1000
	perftest "$v" tag_bw 65536 500
	perftest "$v" tag_bw 4194304 30
	perftest "$v" ucp_am_lat 8192 500
	perftest "$v" ucp_am_bw 1048576 50
	perftest "$v" stream_lat 8 1000
	perftest "$v" stream_bw 65536 500
	perftest "$v" ucp_put_lat 8 500
	perftest "$v" ucp_put_bw 65536 500
	perftest "$v" ucp_get 65536 200
done
tap_done
