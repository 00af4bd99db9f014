#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# NCCL's limits for its own sockets hold for weft's: so many, and no more.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder
perf=${WEFT_BUILD:?}/tests/nccl/perf/nccl_perf
plugin=$WEFT_BUILD/nccl_net/.libs/libnccl-net-weft.so
export NCCL_SOCKET_IFNAME=lo

# The most bulk sockets that a rank had at once.
most() # [VARIABLE=VALUE...]
{
	rm -f "$tap_tmp/stats"
	env "$@" WEFT_STATS="$tap_tmp/stats" "$perf" --case sizes \
		--case both-ways "$plugin" | grep -v ' ok '
	sed 's/.*"streams_max":\([0-9]*\).*/\1/' "$tap_tmp/stats" | sort -n |
		tail -1
}

tap_equal "NTHREADS=2 times NSOCKS_PERTHREAD=2 makes 4 streams" \
	"$(most NCCL_SOCKET_NTHREADS=2 NCCL_NSOCKS_PERTHREAD=2)" 4
tap_equal "NTHREADS=3 makes 3 streams" "$(most NCCL_SOCKET_NTHREADS=3)" 3
tap_equal "NSOCKS_PERTHREAD=2 makes 2 streams" "$(most NCCL_NSOCKS_PERTHREAD=2)" 2
tap_equal "1 times 1 makes 1 stream" "$(most NCCL_SOCKET_NTHREADS=1 NCCL_NSOCKS_PERTHREAD=1)" 1
tap_equal "WEFT_TCP_STREAMS overrides NCCL's variables" \
	"$(most NCCL_SOCKET_NTHREADS=2 WEFT_TCP_STREAMS=3)" 3
tap_done
