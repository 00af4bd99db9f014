#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# weft info lists the ports of adapters, weft run chooses one. Also the only test without an adapter that
# loads libibverbs by name and resolves its functions.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
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
# Of two that are equally near; which is nearest is for verbs_test.c.
fake=$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so
task() # VARIABLE=VALUE...
{
	env WEFT_LIBCUDA="$fake" WEFT_LIBNVML="$fake" WEFT_TEST_NVML=1 \
		OMPI_COMM_WORLD_LOCAL_RANK=1 "$@"
}
run=("$WEFT_BUILD/tools/weft" run -g 1)
tap_equal "a task of a launcher's uses the port nearest to its GPU" \
	"$(task "${run[@]}" --print | grep WEFT_NET_DEVICES)" \
	"export WEFT_NET_DEVICES='auto'	# of 2 ports weft_ib uses fake0:1, nearest to the GPU (SYS)"
tap_equal "a port that is named stays" \
	"$(task UCX_NET_DEVICES=fake1:1 "${run[@]}" --print | grep -c WEFT_NET_DEVICES)" 0
if test -z "$WEFT_SANITIZED"; then
	tap_equal "and that is the port that the task has" \
		"$(task "${run[@]}" "$WEFT_BUILD/tools/weft" info | grep RoCE:)" \
		"  InfiniBand, RoCE: fake0:1: weft_ib is offered"
fi
lost="ECONNRESET:the peer said"
if out=$("$WEFT_BUILD/tests/vm/faults" fake0:1 fake1:1 \
	"ECONNRESET:remote access error;$lost" \
	"ECONNRESET:the adapter refused;$lost" bad-rkey 2>&1); then
	tap_ok "a put with a bad rkey fails through libibverbs' own functions"
else
	tap_not_ok "a put with a bad rkey fails through libibverbs' own functions" "$out"
fi
tap_done
