#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A process flushes, and ends in the next instant without taking anything down: by
# exit(), by _exit(), by exit() in another thread, by SIGKILL. What it had sent
# arrives, over each of weft's transports that this host has. Between the oldest UCX
# and the newest exit() and SIGKILL stand for the four (./quickstart test --long: all).
. "$(dirname "$0")/common.sh"

tap_folder
find_builds
build_program leave leave.c host.c || tap_skip_all "cannot build"
export UCX_NET_DEVICES=lo,shm UCX_WARN_UNUSED_ENV_VARS=n

leave() # VERSION TLS ARGUMENT...
{
	local v=$1 tls=$2 pid rc waits
	local name="$v, $tls: ${*:3}"
	shift 2
	UCX_TLS=$tls under "$v" "$tap_tmp/leave" wait "$tap_tmp/meet" peer "$@" \
		>"$tap_tmp/wait" 2>&1 &
	pid=$!
	UCX_TLS=$tls under "$v" "$tap_tmp/leave" come "$tap_tmp/meet" peer "$@" \
		>"$tap_tmp/come" 2>&1
	rc=$?
	wait $pid
	waits=$?
	test "${*: -1:1}" != how=kill || rc=$((rc - 137))
	if test $rc = 0 && test $waits = 0; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "$(words)"
	fi
}

for v in "${versions[@]}"; do
	whole=${WEFT_TEST_LONG-}
	case $v in "${versions[0]}" | "${versions[-1]}") whole=yes ;; esac
	for tls in weft_tcp weft_shm; do
		for how in exit kill ${whole:+_exit thread}; do
			leave "$v" $tls how=$how
		done
		test -n "$whole" || continue
		leave "$v" $tls how=exit busy
	done
	test -n "$whole" || continue
	# of the close of such an endpoint UCP learns by a socket of its own
	for tls in weft_tcp weft_shm,weft_tcp; do
		leave "$v" $tls sock peer am how=exit
		leave "$v" $tls sock peer am how=kill
	done
done
tap_done
