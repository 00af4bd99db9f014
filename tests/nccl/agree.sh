#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What ranks must have in common, since NCCL would hang or write beside its buffers:
# the plugin compares it, and says who has what.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
plugin=${WEFT_BUILD:?}/nccl_net/.libs/libnccl-net-weft.so

perf() # OPTION...: prints what went wrong
{
	"$WEFT_BUILD"/tests/nccl/perf/nccl_perf --check --case sizes "$@" \
		"$plugin" 2>&1 | grep -v -e '^v[0-9]* *[a-z-]* *ok '
}

seen=$(perf --env 1:NCCL_BUFFSIZE=8388608)
if grep -q "NCCL_BUFFSIZE here 4 MiB, there 8 MiB" <<<"$seen"; then
	tap_ok "ranks that reported different things to NCCL log both"
else
	tap_not_ok "ranks that reported different things to NCCL log both" "$seen"
fi
tap_nothing "a buffer size that is NCCL's own default is no difference" \
	"$(perf --env 1:NCCL_BUFFSIZE=4194304)"
tap_nothing "the user's own settings stay" \
	"$(NCCL_MIN_NCHANNELS=2 NCCL_BUFFSIZE=1048576 perf)"
tap_done
