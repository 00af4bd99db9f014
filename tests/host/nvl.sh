#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# GPU memory through real UCX, mapped by weft_nvl: every byte checked, and who moved
# it.
. "$(dirname "$0")/gpu_sides.sh"

export WEFT_TEST_CUDA_IPC=$tap_tmp/ipc
chosen=weft_nvl,weft_tcp,cuda_copy

# All bytes of a run, each once.
moves_all() # NAME BYTES [MOST-OF-MESSAGES]
{
	tap_equal "$1: weft_nvl moves all bytes, once" \
		"$(($(of nvlink tx_put_bytes) + $(of nvlink get_bytes)))" "$2"
	between "$1: weft_tcp carries no data" 0 "$(of tcp wire_tx_bytes)" \
		"${3:-65536}"
}

# Plain memory, as programs allocate it.
carried() # VERSION
{
	local v=$1
	UCX_TLS=$chosen try "$v: large messages" gpu "$v" peer max=4 large
	moves_all "$v: large" $((2 * large))
	UCX_TLS=$chosen UCX_RNDV_SCHEME=get_zcopy \
		try "$v: large messages, scheme get" gpu "$v" max=4 large
	tap_equal "$v: get_zcopy makes gets" "$(of nvlink get_bytes)" \
		$((2 * large))
	UCX_TLS=$chosen UCX_RNDV_SCHEME=put_zcopy \
		try "$v: large messages, scheme put" gpu "$v" max=4 large
	tap_equal "$v: put_zcopy makes puts" "$(of nvlink tx_put_bytes)" \
		$((2 * large))
}

# GPU memory that a process has registered tells weft of the driver; of one side
# UCX registers none.
first() # VERSION
{
	local v=$1 scheme
	for scheme in get put; do
		UCX_TLS=$chosen UCX_RNDV_SCHEME=${scheme}_zcopy \
			try "$v: the first GPU memory, scheme $scheme" \
			gpu "$v" peer oneway
	done
}

other_memory() # VERSION
{
	local v=$1 all
	UCX_TLS=$chosen try "$v: memory of cuMemCreate()" \
		gpu "$v" peer memory=vmm max=4 large
	moves_all "$v: cuMemCreate()" $((2 * large))
	UCX_TLS=$chosen UCX_RNDV_SCHEME=get_zcopy \
		try "$v: the same, scheme get" gpu "$v" peer memory=vmm max=4 large
	moves_all "$v: the same, scheme get" $((2 * large))
	PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True UCX_TLS=$chosen \
		try "$v: buffers over several allocations" \
		gpu "$v" peer memory=parts max=4 large
	moves_all "$v: several allocations" $((2 * large))
	UCX_TLS=$chosen try "$v: 4,000 messages of such memory" \
		gpu "$v" memory=vmm max=2 many
	UCX_TLS=$chosen try "$v: memory that is freed and allocated again" \
		gpu "$v" peer max=1 again
	all=$((2 * 12 * 8 * (1024 + 64) * 1024))
	moves_all "$v: freed" $all 262144
	between "$v: freed: some addresses come again" 1 \
		"$(sed -n 's/.*each way, \([0-9]*\) times.*/\1/p' "$tap_tmp/wait")" 11
}

# What cannot be mapped goes another way, and no message fails for it.
not_mapped() # NAME
{
	tap_equal "$1: weft_nvl moves nothing" \
		"$(($(of nvlink tx_put_bytes) + $(of nvlink get_bytes)))" 0
	between "$1: weft_tcp carries it" $((2 * large)) \
		"$(of tcp wire_tx_bytes)" $((2 * large * 12 / 10))
}

unmappable() # VERSION
{
	local v=$1
	UCX_TLS=$chosen WEFT_TEST_CUDA_IPC= \
		try "$v: memory without a handle" gpu "$v" peer max=4 large
	not_mapped "$v: no handle"
	UCX_TLS=$chosen WAIT='env WEFT_TEST_CUDA_NODES=0' \
		COME='env WEFT_TEST_CUDA_NODES=1' \
		try "$v: without the other's device node" \
		gpu "$v" peer max=4 large
	not_mapped "$v: no node"
}

# Host memory goes where it went without weft_nvl.
host_memory() # VERSION
{
	local v=$1 bytes=$((2 * 88080388))
	UCX_TLS=$chosen try "$v: host memory beside weft_nvl" \
		exchange "$v" peer large
	between "$v: weft_tcp carries host memory" $bytes \
		$(($(of tcp tx_put_bytes) + $(of tcp get_bytes))) \
		$((bytes + 65536))
	tap_equal "$v: weft_nvl puts no host memory" \
		"$(($(of nvlink tx_put_bytes) + $(of nvlink get_bytes)))" 0
}

# A list that does not name them allows weft_shm, too, which carries messages
# and, in them, UCX's headers.
not_by_nvl() # NAME
{
	local messages
	messages=$(of shm tx_message_bytes)
	between "$1: all by weft_tcp or weft_shm" $((2 * 88080388)) \
		$(($(of tcp tx_put_bytes) + $(of tcp get_bytes) + messages +
			$(of shm tx_put_bytes) + $(of shm get_bytes))) \
		$((2 * 88080388 + 65536 + messages / 1000))
}

# Without cuda_copy UCX fails a worker that has a transport for GPU memory.
without_cuda_copy() # VERSION
{
	local tls
	# nor may cuda_ipc be alone, in 1.18 and 1.20 without weft, too
	for tls in weft_nvl,weft_tcp ^cuda_copy,cuda_ipc,tcp,sm ^cuda,tcp,sm; do
		IGNORE='weft_nvl needs\|is not available' WEFT_UCX=on \
			UCX_TLS=$tls try "$1: UCX_TLS=$tls" exchange "$1" large
		between "$1: it is logged once" 2 \
			"$(cat "$tap_tmp"/{wait,come} |
				grep -c 'weft_nvl needs')" 2
		not_by_nvl "$1: UCX_TLS=$tls"
	done
}

# A process that sees no GPU, as Dask's scheduler is started, beside one that
# does; then a driver that has none to show.
without_gpu() # VERSION
{
	local name=CUDA_VISIBLE_DEVICES
	IGNORE='are not available' COME="env $name=" UCX_TLS=$chosen \
		try "$1: $name is empty" exchange "$1" peer large
	not_by_nvl "$1: $name is empty"
	name=WEFT_TEST_CUDA_NODES
	IGNORE='are not available' WAIT="env $name=" COME="env $name=" \
		UCX_TLS=$chosen try "$1: a driver without a GPU" \
		exchange "$1" peer large
	not_by_nvl "$1: a driver without a GPU"
}

# In 1.18 UCX loses a request then, and says so.
killed() # VERSION
{
	IGNORE='was not \(matched\|returned\)' UCX_TLS=$chosen \
		try "$1: a killed peer" gpu "$1" peer max=4 killed
	IGNORE='was not \(matched\|returned\)' UCX_TLS=$chosen \
		try "$1: a killed peer that has memory mapped" \
		gpu "$1" peer memory=vmm max=4 killed
}

# As Docker starts containers that do not share IPC: all namespaces of their
# own, and /dev/shm. Each has the same pid, which stands in a handle.
apart() # VERSION
{
	local v=$1 own="unshare -uipmf --mount-proc --kill-child $tap_tmp/own-shm"
	printf '%s\n' '#!/bin/sh' 'mount -t tmpfs none /dev/shm && exec "$@"' \
		>"$tap_tmp/own-shm"
	chmod +x "$tap_tmp/own-shm"
	export UCX_NET_DEVICES=eth0
	WAIT="ip netns exec ${netns}a $own" \
		COME="ip netns exec ${netns}b $own" UCX_TLS=$chosen \
		try "$v: pods that share a folder" gpu "$v" peer max=4 large
	moves_all "$v: pods with a folder" $((2 * large))
	mkdir -p "$tap_tmp/own"
	WAIT="ip netns exec ${netns}a $own" \
		COME="ip netns exec ${netns}b $own env WEFT_RUN_DIR=$tap_tmp/own" \
		UCX_TLS=$chosen \
		try "$v: pods that share nothing" gpu "$v" peer max=4 large
	between "$v: weft_tcp carries between pods that share nothing" $((2 * large)) \
		"$(of tcp wire_tx_bytes)" $((2 * large * 12 / 10))
	tap_equal "$v: weft_nvl carries nothing between them" \
		"$(($(of nvlink tx_put_bytes) + $(of nvlink get_bytes)))" 0
	export UCX_NET_DEVICES=lo
}

protocols() # UCX_TLS VERSION PRELOAD
{
	(test -z "$1" || export UCX_TLS="$1"
	 UCX_PROTO_INFO=y PRELOAD_BOTH=$3 two gpu "$2" lanes)
	grep -h '^#\|[|]' "$tap_tmp/wait" | sed -e 's/^\[[^]]*\] *\[[^]]*\] *//' \
		-e 's/0x[0-9a-f]*//g' -e '/peer:\|transfers/d'
}

unchosen() # VERSION
{
	local v=$1 without
	for tls in posix,self,cuda_copy weft_tcp,cuda_copy; do
		without=$(protocols $tls "$v" \
			"$(test $tls = weft_tcp,cuda_copy &&
				echo "$PRELOAD_BOTH" || echo A=1)")
		case $without in
		*lane\[0\]*) tap_equal "$v: UCX_TLS=$tls: the same protocols" \
			"$(protocols $tls "$v" "$PRELOAD_BOTH")" "$without" ;;
		*) tap_not_ok "$v: UCX_TLS=$tls: protocols" "$without$(words)" ;;
		esac
	done
	case $(protocols $chosen "$v" "$PRELOAD_BOTH") in
	*weft_nvl*) tap_ok "$v: UCX_TLS=$chosen: weft_nvl" ;;
	*) tap_not_ok "$v: UCX_TLS=$chosen: weft_nvl" "$(words)" ;;
	esac
}

for v in "${capable[@]}"; do
	UCX_TLS=$chosen try "$v: every size and allocator" gpu "$v" max=4 values
	UCX_TLS=$chosen try "$v: by socket address, blocking, error handling" \
		gpu "$v" sock peer block max=1 values
	carried "$v"
	first "$v"
	other_memory "$v"
	unmappable "$v"
	UCX_TLS=$chosen \
		try "$v: data end the rest of one that spins" \
		gpu "$v" spin max=4 large
	host_memory "$v"
	without_cuda_copy "$v"
	without_gpu "$v"
	killed "$v"
	unchosen "$v"
done
if test "$(id -u)" = 0 && cable; then
	for v in "${capable[@]}"; do
		apart "$v"
	done
else
	tap_skip "pods" "network namespaces need root, iproute2 and a mount point at /"
fi
tap_done
