#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Host memory through real UCX over weft_shm, in one namespace and between two
# pods that share a folder: every byte checked, and who carried it.
. "$(dirname "$0")/common.sh"

tap_folder
find_builds
build_program exchange exchange.c host.c transfer.c || tap_skip_all "cannot build"
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

carried() # NAME
{
	local puts gets
	puts=$(of shm tx_put_bytes)
	gets=$(of shm get_bytes)
	between "$1: large messages are put or got" $large $((puts + gets)) \
		$((large + 65536))
	between "$1: large messages use no active messages" 1 \
		"$(of shm tx_message_bytes)" 65536
	between "$1: at most 1 % more in the ring" $large \
		"$(of shm wire_tx_bytes)" $((large + large / 100))
	between "$1: weft_tcp carries no data" 0 "$(of tcp wire_tx_bytes)" 65536
}

for v in "${versions[@]}"; do
	try "$v: every kind of transfer" "$v" peer
	test "$v" = "${versions[0]}" || test "$v" = "${versions[-1]}" || continue
	try "$v: large messages" "$v" peer large
	carried "$v"
	test "$(minor_of "$v")" -lt 16 ||
		tap_equal "$v: large messages are puts" "$(of shm get_bytes)" 0
	# UCX's own is faster, but for pods
	UCX_TLS=$UCX_TLS,sm try "$v: beside UCX's own shared memory" \
		"$v" peer large
	tap_equal "$v: weft_shm leaves it to UCX's own" \
		"$(of shm wire_tx_bytes)" 0
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

pods()
{
	local v=${versions[-1]} pod="unshare -nimup --fork --mount-proc --kill-child"
	if ! $pod true 2>/dev/null; then
		tap_skip "between pods" "no namespaces to be had here"
		return
	fi
	# the first process of a pod cannot be killed from within
	cat >"$tap_tmp/first" <<-'END'
		#!/bin/sh
		"$@"
		exit $?
	END
	chmod +x "$tap_tmp/first"
	# unquoted where they are used: words of a command
	PRELOAD_WAIT="timeout 100 $pod $tap_tmp/first env LD_PRELOAD=$preload"
	PRELOAD_COME=$PRELOAD_WAIT
	# no interface is up there
	unset UCX_NET_DEVICES
	export UCX_TLS=weft_shm
	try "$v, two pods: every kind of transfer" "$v" peer block
	IGNORE='was not \(matched\|returned\)' \
		try "$v, two pods: a killed peer" "$v" peer killed
	UCX_TLS=weft_shm,sm try "$v, two pods: large messages" "$v" peer large
	carried "$v, two pods"
	WEFT_RUN_DIR=$tap_tmp/nowhere IGNORE='' UCX_TLS=weft_shm \
		exchange "$v" "$v" connect && tap_not_ok \
		"$v, two pods: without a folder they do not meet" "$(words)" ||
		tap_ok "$v, two pods: without a folder they do not meet"
}
pods
tap_done
