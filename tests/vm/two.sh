#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weft_ib between two hosts by socket address: two emulated machines on a cable,
# a Soft-RoCE device in each; two-inside.sh in both. The second vanishes at last.
. "${WEFT_SRC:?}/tests/host/common.sh"
here=$WEFT_SRC/tests/vm

grep -q 'HAVE_VERBS_H 1' "${WEFT_BUILD:?}/config.h" ||
	tap_skip_all "built without rdma-core's headers"
tap_folder
kernel=$(bash "$here/prepare.sh" 2>"$tap_tmp/why") ||
	tap_skip_all "no emulated machine: $(tail -1 "$tap_tmp/why")"
find_builds
build_program exchange exchange.c host.c transfer.c || tap_skip_all "cannot build"
# both see this machine's files
export WEFT_TEST_EXCHANGE=$tap_tmp/exchange

for node in 0 1; do
	bash "$here/boot.sh" -m 768 -w "$tap_tmp" -n $node "$kernel" \
		"${WEFT_TEST_VM_SECONDS:-900}" \
		bash "$here/two-inside.sh" >"$tap_tmp/said.$node" 2>&1 &
	pids[node]=$!
done
wait "${pids[0]}"
rc=$?
wait "${pids[1]}"
cat "$tap_tmp/said.0"
# what boot.sh has to say of a machine that ended by itself
sed '/^# host 1 vanishes/q' "$tap_tmp/said.1"
grep -q '^# host 1 vanishes' "$tap_tmp/said.1" || rc=1
! grep -q '^not ok' "$tap_tmp/said.1" || rc=1
exit $rc
