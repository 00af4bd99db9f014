#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weft_ib under real UCX on Soft-RoCE: tests/host/ib.sh in the emulated machine,
# and UCX's own benchmark.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
here=$WEFT_SRC/tests/vm

tap_folder
kernel=$(bash "$here/prepare.sh" 2>"$tap_tmp/why") ||
	tap_skip_all "no emulated machine: $(tail -1 "$tap_tmp/why")"
# fetched here, the machine has no network
bash "$WEFT_SRC/tests/tools/fetch-ucx.sh" ${WEFT_OFFLINE:+--list} >/dev/null
WEFT_OFFLINE=1 bash "$here/boot.sh" "$kernel" \
	"${WEFT_TEST_VM_SECONDS:-1400}" env EXCHANGE_ALARM=300 bash -c '
		bash "$WEFT_SRC/tests/host/ib.sh" ends
		rc=$?
		bash "$WEFT_SRC/tests/host/perftest.sh" rxe0:1 && exit $rc'
