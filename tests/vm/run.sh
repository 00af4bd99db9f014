#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The InfiniBand device on Soft-RoCE, in an emulated machine of some minutes.
# Where there cannot be one, it is skipped, and says why.
. "${WEFT_SRC:?}/tests/host/common.sh" || exit 99
here=$WEFT_SRC/tests/vm

grep -q 'HAVE_VERBS_H 1' "${WEFT_BUILD:?}/config.h" ||
	tap_skip_all "built without rdma-core's headers"
make -s -C "$WEFT_BUILD" tests/conformance/conformance tests/vm/faults \
	tools/weft nccl_net/libnccl-net-weft.la tests/lib/libfake_cuda.la \
	tests/nccl/perf/nccl_perf >&2 ||
	exit 99
tap_folder
kernel=$(bash "$here/prepare.sh" 2>"$tap_tmp/why") ||
	tap_skip_all "no emulated machine: $(tail -1 "$tap_tmp/why")"
# fetched and compiled here: the machine has no network, and time
venv=$(bash "$WEFT_SRC/tests/tools/venv.sh") || exit 99
find_builds
build_program exchange exchange.c host.c transfer.c || exit 99
export WEFT_TEST_PROGRAMS=$tap_tmp
# what Dask writes is in memory, too
bash "$here/boot.sh" -m 2048 "$kernel" "${WEFT_TEST_VM_SECONDS:-900}" \
	bash "$here/inside.sh" "$venv/bin/python"
