#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The NCCL plugin through every version of NCCL's interface, over real sockets.
# They differ in tables alone: sanitizers, which take their time, see the newest.
test -n "$WEFT_SANITIZED" || all=--all-api
# shellcheck disable=SC2086 # none is no word
exec "${WEFT_BUILD:?}"/tests/nccl/perf/nccl_perf --check ${all-} --tap \
	"$WEFT_BUILD"/nccl_net/.libs/libnccl-net-weft.so
