#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Host memory through real UCX over weft_shm, in one namespace and between two
# pods that share a folder: every byte checked, and who carried it.
. "$(dirname "$0")/common.sh"

tap_folder
find_builds
build_program exchange exchange.c host.c transfer.c || tap_skip_all "cannot build"
build_program mesh mesh.c || tap_skip_all "cannot build"
export UCX_NET_DEVICES=lo UCX_WARN_UNUSED_ENV_VARS=n UCX_TLS=weft_shm,weft_tcp
export EXCHANGE_ALARM=${EXCHANGE_ALARM:-60}
export WEFT_RUN_DIR=$tap_tmp/run WEFT_STATS=$tap_tmp/stats
mkdir "$WEFT_RUN_DIR"
large=$((2 * 88080388)) # what "large" moves, both ways

try() # NAME VERSION ARGUMENT...
{
	local name=$1 v=$2
	shift 2
	rm -f "$tap_tmp/stats"
	if ! exchange "$v" "$v" "$@"; then
		tap_not_ok "$name" "$(words)"
	else
		says_nothing "$name" "${IGNORE:-nothing to ignore}"
	fi
}

carried() # NAME COUNTER: what counts the bytes of large messages
{
	between "$1: large messages are counted by $2" $large "$(of shm "$2")" \
		$((large + large / 100))
	between "$1: at most 1 % more in the ring" $large \
		"$(of shm wire_tx_bytes)" $((large + large / 100))
	between "$1: weft_tcp carries no data" 0 "$(of tcp wire_tx_bytes)" 65536
}

# What a release of UCX makes of large messages: UCP of 1.16 and later
# (protocols v2) compares the costs.
by() # VERSION
{
	test "$(minor_of "$1")" -lt 16 && echo get_bytes ||
		echo tx_message_bytes
}

refused() # VERSION: memory to share, on both sides or on one
{
	local v=$1 box="$WEFT_BUILD/tests/lib/refuse" what
	if ! $box memfd true 2>/dev/null; then
		tap_skip "$v: in a sandbox" "no seccomp filter is available here"
		return
	fi
	# unquoted where it is used: words of a command
	for what in memfd seals; do
		PRELOAD_WAIT="$box $what env LD_PRELOAD=$preload" \
			PRELOAD_COME="$box $what env LD_PRELOAD=$preload" \
			IGNORE="'weft_shm' is not available" \
			try "$v: in a sandbox without $what weft_tcp serves" \
			"$v" peer large
		between "$v: without $what weft_tcp carries it" $large \
			"$(of tcp wire_tx_bytes)" $((large + large / 100))
	done
	PRELOAD_COME="$box memfd env LD_PRELOAD=$preload" \
		IGNORE="'weft_shm' is not available" \
		try "$v: one side in such a sandbox" "$v" peer large
}

for v in "${versions[@]}"; do
	try "$v: every kind of transfer" "$v" peer
	test "$v" = "${versions[0]}" || test "$v" = "${versions[-1]}" || continue
	try "$v: large messages" "$v" peer large
	carried "$v" "$(by "$v")"
	refused "$v"
	UCX_RNDV_SCHEME=put_zcopy UCX_RNDV_THRESH=64k \
		try "$v: large messages, scheme put" "$v" peer large
	carried "$v, scheme put" tx_put_bytes
	# it has no error handling
	UCX_TLS=$UCX_TLS,sm try "$v: beside UCX's own shared memory" \
		"$v" peer large
	carried "$v, beside UCX's own shared memory" "$(by "$v")"
	UCX_TLS=$UCX_TLS,sm try "$v: beside it, without error handling" \
		"$v" large
	test "$(minor_of "$v")" -lt 16 ||
		between "$v: there weft_shm leaves messages to UCX's own" 0 \
			"$(of shm wire_tx_bytes)" 65536
	between "$v: there, too, weft_tcp carries no data" 0 \
		"$(of tcp wire_tx_bytes)" 65536
	# the rest is alike in all of them: with ./quickstart test --long
	test "$v" = "${versions[-1]}" || test -n "${WEFT_TEST_LONG-}" || continue
	try "$v: blocking, three endpoints" "$v" block eps=3
	try "$v: by socket address, error handling, blocking" \
		"$v" sock peer block
	try "$v: data end the sleep of a program that polls an event fd" "$v" spin
	try "$v: active messages with the longest header" "$v" headers
	try "$v: a fence between puts" "$v" fence
	try "$v: one leaves, with error handling" "$v" peer late
	# from 1.18 on it may lose a request then, and says so
	IGNORE='was not \(matched\|returned\)' \
		try "$v: a killed peer" "$v" peer killed
	UCX_RNDV_SCHEME=get_zcopy try "$v: large messages, scheme get" \
		"$v" peer large
	tap_equal "$v: both sides count the gets" \
		"$(of shm tx_get_bytes)" "$(of shm get_bytes)"
done

mesh() # PROCESSES: what a program that connects each to each has open
{
	local name="$v: $1 processes, each connected to each" said
	# less than their rings take: a container has 64 MiB
	local small=(unshare -m sh -c
		'mount -t tmpfs -o size=1m none /dev/shm && exec "$@"' sh)
	"${small[@]}" true 2>/dev/null || small=()
	rm -f "$tap_tmp/stats"
	if ! said=$(under "$v" timeout 60 "${small[@]}" "$tap_tmp/mesh" "$1" \
			40000 2>&1); then
		tap_not_ok "$name" "$said"
		return
	fi
	between "$name: a descriptor for each" "$1" \
		"$(sed -n 's/.*"descriptors":\([0-9]*\),.*/\1/p' <<<"$said")" \
		$(($1 + 30))
	between "$name: weft_shm carries every message, once" \
		$(($1 * ($1 - 1) * 40000)) "$(of shm tx_message_bytes)" \
		$(($1 * ($1 - 1) * 41000))
}

pods()
{
	local v=${versions[-1]} pod="unshare -nimup --fork --mount-proc --kill-child"
	if ! $pod true 2>/dev/null; then
		tap_skip "between pods" "no namespaces to be had here"
		return
	fi
	# unquoted where they are used: words of a command
	PRELOAD_WAIT="timeout -k 5 100 $pod env LD_PRELOAD=$preload"
	PRELOAD_COME=$PRELOAD_WAIT
	# no interface is up there
	unset UCX_NET_DEVICES
	export UCX_TLS=weft_shm
	try "$v, two pods: every kind of transfer" "$v" peer block
	IGNORE='was not \(matched\|returned\)' \
		try "$v, two pods: a killed peer" "$v" peer killed
	UCX_TLS=weft_shm,sm try "$v, two pods: large messages" "$v" peer large
	carried "$v, two pods" "$(by "$v")"
	WEFT_RUN_DIR=$tap_tmp/nowhere IGNORE='' UCX_TLS=weft_shm \
		exchange "$v" "$v" connect && tap_not_ok \
		"$v, two pods: without a folder they do not meet" "$(words)" ||
		tap_ok "$v, two pods: without a folder they do not meet"
}
v=${versions[-1]}
mesh 12
pods
tap_done
