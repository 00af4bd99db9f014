#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# weft info lists the ports of adapters. Also the only test without an adapter that
# loads libibverbs by name and resolves its functions.
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

tap_equal "weft info lists the active RoCE ports" \
	"$(info | grep -c 'RoCE: fake0:1 fake1:1: weft_ib is offered')" 1
lost="ECONNRESET:the peer said"
if out=$("$WEFT_BUILD/tests/vm/faults" fake0:1 fake1:1 \
	"ECONNRESET:remote access error;$lost" \
	"ECONNRESET:the adapter refused;$lost" bad-rkey 2>&1); then
	tap_ok "a put with a bad rkey fails through libibverbs' own functions"
else
	tap_not_ok "a put with a bad rkey fails through libibverbs' own functions" "$out"
fi
tap_done
