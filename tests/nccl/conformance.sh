#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The NCCL plugin through every version of NCCL's interface, over real sockets.
exec "${WEFT_BUILD:?}"/tools/weft perf --check --all-api --tap \
	"$WEFT_BUILD"/nccl_net/.libs/libnccl-net-weft.so
