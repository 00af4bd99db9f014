#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The plugin's threads and descriptors go with its last comm, and not only when
# NCCL says that it is done, which it does from 2.28 on (v11), or unloads it.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder
alone=${WEFT_BUILD:?}/tests/nccl/alone
plugin=$WEFT_BUILD/nccl_net/.libs/libnccl-net-weft.so
fake=$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so
export WEFT_RUN_DIR=$tap_tmp NCCL_SOCKET_IFNAME=lo WEFT_TCP_THREADS=2

leaves_nothing() # DEVICE API [VARIABLE=VALUE...]
{
	local name="v$2, $1: nothing is left" device=$1 api=$2 seen
	shift 2
	rm -f "$tap_tmp/stats"
	if ! seen=$(env "$@" WEFT_STATS="$tap_tmp/stats" \
		"$alone" "$api" "$plugin" 2>&1); then
		tap_not_ok "$name" "$seen"
	elif ! grep -q "\"weft\":\"$device\"" "$tap_tmp/stats"; then
		tap_not_ok "$name" "it did not carry anything"
	else
		tap_ok "$name"
	fi
}

for api in 6 7 8 9 10 11 12; do
	leaves_nothing tcp $api
	# the sanitizer wants to be first
	test -n "$WEFT_SANITIZED" ||
		leaves_nothing nvlink $api WEFT_NCCL_NVLINK=on \
			WEFT_LIBCUDA="$fake" LD_PRELOAD="$fake"
done
tap_done
