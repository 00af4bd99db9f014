#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What a forked child does with its parent's UCX, in the oldest UCX and the newest:
# the parent's connections go on.
. "$(dirname "$0")/common.sh"

tap_folder
find_builds
test ${#versions[@]} -lt 3 || versions=("${versions[0]}" "${versions[-1]}")
build_program fork fork.c sides.c host.c || tap_skip_all "cannot build"
export UCX_NET_DEVICES=lo UCX_WARN_UNUSED_ENV_VARS=n

for v in "${versions[@]}"; do
	for UCX_TLS in weft_tcp weft_shm weft_shm,weft_tcp; do
		export UCX_TLS
		for how in poll sleep; do
			for ends in exit destroy _exit; do
				if under "$v" "$tap_tmp/fork" $how $ends \
					>"$tap_tmp/out" 2>&1; then
					tap_ok "$v: $UCX_TLS: $how, $ends"
				else
					tap_not_ok "$v: $UCX_TLS: $how, $ends" \
						"$(cat "$tap_tmp/out")"
				fi
			done
		done
	done
done
tap_done
