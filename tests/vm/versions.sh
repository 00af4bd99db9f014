#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# NCCL's plugin on Soft-RoCE: every check of nccl_perf in every version of NCCL's
# interface, nccl.sh in the emulated machine.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
here=$WEFT_SRC/tests/vm

grep -q 'HAVE_VERBS_H 1' "${WEFT_BUILD:?}/config.h" ||
	tap_skip_all "built without rdma-core's headers"
tap_folder
kernel=$(bash "$here/prepare.sh" 2>"$tap_tmp/why") ||
	tap_skip_all "no emulated machine: $(tail -1 "$tap_tmp/why")"
bash "$here/boot.sh" -m 2048 "$kernel" "${WEFT_TEST_VM_SECONDS:-1700}" \
	bash "$here/nccl.sh" all
