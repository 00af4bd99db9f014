#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A rank that computes, or is stopped, is not dead: for sixteen times as long as
# a silent kernel would be let be, which is more than a minute by default.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
perf=${WEFT_BUILD:?}/tests/nccl/perf/nccl_perf
plugin=$WEFT_BUILD/nccl_net/.libs/libnccl-net-weft.so
for case in peer-busy peer-stopped; do
	seen=$(WEFT_PEER_TIMEOUT=500ms "$perf" --case $case "$plugin" 2>&1 |
		grep -v ' ok ')
	tap_nothing "$case: the other waits" "$seen"
done
tap_done
