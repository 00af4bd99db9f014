#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# weft info: the ports of adapters. And what no other test without an adapter
# does: the library is loaded by its name, its calls are found in it.
. "$WEFT_SRC/tests/lib/tap.sh"
. "$WEFT_SRC/tests/lib/verbs.sh"
verbs_inside "$0" "$@"
unset LD_PRELOAD UCX_NET_DEVICES
for name in "${!DASK_@}" "${!WEFT_NET@}" "${!WEFT_IB@}" "${!NCCL_@}"; do
	unset "$name"
done
tap_folder
verbs_setup "$tap_tmp" || tap_skip_all "nothing can be put over /sys/class here"
export LD_LIBRARY_PATH=$verbs UCX_TLS=weft_ib

info() # [VARIABLE=VALUE...] [-- ARGUMENT]
{
	local vars=()
	while test $# -gt 0 && test "$1" != --; do
		vars+=("$1")
		shift
	done
	env "${vars[@]}" "$WEFT_BUILD/tools/weft" info "${@:2}" 2>&1
}

tap_equal "the ports are listed" \
	"$(info | grep -c 'RoCE: fake0:1 fake1:1: weft_ib is offered')" 1
lost="ECONNRESET:the peer said"
if out=$("$WEFT_BUILD/tests/vm/faults" fake0:1 fake1:1 \
	"ECONNRESET:remote access error;$lost" \
	"ECONNRESET:the adapter refused;$lost" bad-rkey 2>&1); then
	tap_ok "puts go by the library's own calls"
else
	tap_not_ok "puts go by the library's own calls" "$out"
fi
tap_done
