#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Dask and ucxx over weft_ib on Soft-RoCE: programs.py in the emulated machine.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
here=$WEFT_SRC/tests/vm

grep -q 'HAVE_VERBS_H 1' "${WEFT_BUILD:?}/config.h" ||
	tap_skip_all "built without rdma-core's headers"
tap_folder
kernel=$(bash "$here/prepare.sh" 2>"$tap_tmp/why") ||
	tap_skip_all "no emulated machine: $(tail -1 "$tap_tmp/why")"
venv=$(bash "$WEFT_SRC/tests/tools/venv.sh") || exit 99
# what they write is in memory, too
bash "$here/boot.sh" -m 2048 "$kernel" "${WEFT_TEST_VM_SECONDS:-1700}" \
	env PYTHONPATH="$WEFT_SRC/tests/e2e" PYTHONDONTWRITEBYTECODE=1 \
	E2E_WEFT="$WEFT_BUILD/tools/weft" \
	"$venv/bin/python" "$here/programs.py" "$@"
