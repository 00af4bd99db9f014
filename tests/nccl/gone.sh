#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A transfer from or to memory that cannot be accessed fails on both sides, and
# with it all between the two ranks.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99

# a file system that is too small, in a mount namespace of this test alone
test -n "${GONE_MOUNTS-}" ||
	! unshare --user --map-root-user --mount true 2>/dev/null ||
	GONE_MOUNTS=1 exec unshare --user --map-root-user --mount bash "$0" "$@"

tap_folder
export WEFT_RUN_DIR=$tap_tmp NCCL_SOCKET_IFNAME=lo
plugin=${WEFT_BUILD:?}/nccl_net/.libs/libnccl-net-weft.so
full=
mkdir "$tap_tmp/full"
if mount -t tmpfs -o size=1m none "$tap_tmp/full" 2>/dev/null; then
	full=$tap_tmp/full
fi

try() # NAME
{
	local loss
	for loss in unmapped truncated; do
		tap_nothing "$1: the source is $loss" \
			"$("$WEFT_BUILD"/tests/nccl/gone source $loss "$plugin" 2>&1)"
	done
	for loss in unmapped read-only truncated $full; do
		tap_nothing "$1: the target is ${loss/#*full/in a full file system}" \
			"$("$WEFT_BUILD"/tests/nccl/gone target "$loss" "$plugin" 2>&1)"
	done
}

try tcp
test -z "$full" || umount "$full"
tap_done
