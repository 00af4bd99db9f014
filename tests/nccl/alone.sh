#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The plugin's threads and descriptors go with its last comm, and not only when
# NCCL says that it is done, which it does from 2.28 on (v11), or unloads it.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder
alone=${WEFT_BUILD:?}/tests/nccl/alone
plugin=$WEFT_BUILD/nccl_net/.libs/libnccl-net-weft.so
export WEFT_RUN_DIR=$tap_tmp NCCL_SOCKET_IFNAME=lo WEFT_TCP_THREADS=2

for api in 6 7 8 9 10 11 12; do
	rm -f "$tap_tmp/stats"
	if ! seen=$(WEFT_STATS="$tap_tmp/stats" "$alone" "$api" "$plugin" 2>&1); then
		tap_not_ok "v$api: nothing is left" "$seen"
	elif ! grep -q '"weft":"tcp"' "$tap_tmp/stats"; then
		tap_not_ok "v$api: nothing is left" "it did not carry anything"
	else
		tap_ok "v$api: nothing is left"
	fi
done
tap_done
