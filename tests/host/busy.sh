#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Peers that meet while one of them is busy for longer than WEFT_CONNECT_TIMEOUT,
# or has no descriptor left or few, in the oldest UCX and the newest.
. "$(dirname "$0")/common.sh"

tap_folder
find_builds
test ${#versions[@]} -lt 3 || versions=("${versions[0]}" "${versions[-1]}")
build_program busy busy.c sides.c host.c || tap_skip_all "cannot build"
export UCX_NET_DEVICES=lo UCX_WARN_UNUSED_ENV_VARS=n
export WEFT_CONNECT_TIMEOUT=1s

try() # VERSION WHAT
{
	if under "$1" "$tap_tmp/busy" "$2" >"$tap_tmp/out" 2>&1; then
		tap_ok "$1: $UCX_TLS: $2"
	else
		tap_not_ok "$1: $UCX_TLS: $2" "$(cat "$tap_tmp/out")"
	fi
}

for v in "${versions[@]}"; do
	for UCX_TLS in weft_tcp weft_shm weft_shm,weft_tcp; do
		export UCX_TLS
		try "$v" time
		try "$v" descriptors
	done
	# weft_shm has four for each worker
	UCX_TLS=weft_tcp try "$v" workers
	UCX_TLS=weft_tcp try "$v" endpoints
done
tap_done
