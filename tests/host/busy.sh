#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Peers that meet while one of them is busy for longer than WEFT_CONNECT_TIMEOUT,
# or has no descriptor left, in the oldest UCX and the newest.
. "$(dirname "$0")/common.sh"

tap_folder
find_builds
test ${#versions[@]} -lt 3 || versions=("${versions[0]}" "${versions[-1]}")
build_program busy busy.c sides.c host.c || tap_skip_all "cannot build"
export UCX_NET_DEVICES=lo UCX_WARN_UNUSED_ENV_VARS=n
export WEFT_CONNECT_TIMEOUT=1s

for v in "${versions[@]}"; do
	for UCX_TLS in weft_tcp weft_shm weft_shm,weft_tcp; do
		export UCX_TLS
		for what in time descriptors; do
			if under "$v" "$tap_tmp/busy" $what \
				>"$tap_tmp/out" 2>&1; then
				tap_ok "$v: $UCX_TLS: $what"
			else
				tap_not_ok "$v: $UCX_TLS: $what" \
					"$(cat "$tap_tmp/out")"
			fi
		done
	done
done
tap_done
