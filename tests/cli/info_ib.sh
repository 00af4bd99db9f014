#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# weft info: the ports of adapters, and who of them takes GPU memory.
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

of_gpus() # the lines of it
{
	grep -A1 'GPU memory (WEFT_IB_GPU_DIRECT' |
		sed 's/^ *//; s/, as far.*//' | tr '\n' ' '
}

tap_equal "the ports are listed" \
	"$(info | grep -c 'RoCE: fake0:1 fake1:1: weft_ib is offered')" 1
for world in '' nccl; do
	tap_equal "${world:-UCX}: nothing of GPUs where nobody asks" \
		"$(info -- $world | grep -c 'GPU memory (WEFT_IB')" 0
	tap_equal "${world:-UCX}: both take it" \
		"$(info WEFT_IB_GPU_DIRECT=auto -- $world | of_gpus)" \
		"GPU memory (WEFT_IB_GPU_DIRECT=auto) fake0:1 by dma-buf, fake1:1 by dma-buf "
	tap_equal "${world:-UCX}: one does not" "$(info WEFT_IB_GPU_DIRECT=on \
		WEFT_TEST_VERBS_NO_DMABUF=1 -- $world | of_gpus)" \
		"GPU memory (WEFT_IB_GPU_DIRECT=on) fake0:1 by dma-buf, fake1:1 not "
done
tap_equal "UCX: nothing of GPUs without weft_ib" \
	"$(info UCX_TLS=weft_tcp WEFT_IB_GPU_DIRECT=on |
		grep -c 'GPU memory (WEFT_IB')" 0
tap_done
