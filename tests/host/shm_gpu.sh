#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# GPU memory through real UCX over weft_shm, as between pods whose device nodes
# are hidden from each other: every byte checked, and who carried it.
. "$(dirname "$0")/gpu_sides.sh"

chosen=weft_shm,cuda_copy
# no GPU of the other side is seen
export WAIT="env WEFT_TEST_CUDA_NODES=0" COME="env WEFT_TEST_CUDA_NODES=1"

carried() # VERSION
{
	local v=$1 scheme other
	UCX_TLS=$chosen try "$v: large messages" gpu "$v" peer max=4 large
	tap_equal "$v: large messages are puts, each once" \
		"$(of shm tx_put_bytes)" $((2 * large))
	tap_equal "$v: both sides count them" "$(of shm rx_put_bytes)" $((2 * large))
	between "$v: messages carry no data" 1 "$(of shm tx_message_bytes)" 65536
	between "$v: at most 1 % more on the wire" $((2 * large)) \
		"$(of shm wire_tx_bytes)" $((2 * large * 101 / 100))
	UCX_TLS=$chosen UCX_RNDV_SCHEME=get_zcopy \
		try "$v: large messages, scheme get" gpu "$v" max=4 large
	tap_equal "$v: get_zcopy makes gets" "$(of shm get_bytes)" $((2 * large))
	tap_equal "$v: both sides count the gets" \
		"$(of shm tx_get_bytes)" "$(of shm get_bytes)"
	# of one side UCX registers none
	for scheme in get put; do
		UCX_TLS=$chosen UCX_RNDV_SCHEME=${scheme}_zcopy \
			try "$v: the first GPU memory, scheme $scheme" \
			gpu "$v" peer oneway
	done
	# weft_tcp is no second rail
	UCX_TLS=weft_tcp,$chosen try "$v: beside weft_tcp" gpu "$v" peer max=4 large
	tap_equal "$v: beside weft_tcp: all by weft_shm" \
		"$(of shm tx_put_bytes)" $((2 * large))
}

# weft_nvl moves GPU memory that it can map, and weft_shm all other.
beside_nvl() # VERSION
{
	local v=$1
	WAIT='' COME='' UCX_TLS=weft_nvl,$chosen \
		WEFT_TEST_CUDA_IPC=$tap_tmp/ipc \
		try "$v: beside weft_nvl" gpu "$v" peer max=4 large
	tap_equal "$v: beside weft_nvl: it moves all bytes" \
		"$(($(of nvlink tx_put_bytes) + $(of nvlink get_bytes)))" \
		$((2 * large))
	tap_equal "$v: beside weft_nvl: weft_shm moves none" \
		"$(($(of shm tx_put_bytes) + $(of shm get_bytes)))" 0
	WAIT='' COME='' UCX_TLS=weft_nvl,$chosen \
		try "$v: memory without a handle" gpu "$v" peer max=4 large
	tap_equal "$v: no handle: weft_shm moves all bytes" \
		"$(($(of shm tx_put_bytes) + $(of shm get_bytes)))" \
		$((2 * large))
}

# Host memory goes as without a GPU; and without cuda_copy UCX would fail a
# worker that has a transport for GPU memory.
host_memory() # VERSION
{
	local v=$1 tls
	for tls in weft_shm,cuda_copy weft_shm; do
		UCX_TLS=$tls try "$v: host memory, UCX_TLS=$tls" \
			exchange "$v" peer large
	done
}

for v in "${capable[@]}"; do
	UCX_TLS=$chosen try "$v: every size and allocator" gpu "$v" max=4 values
	# the connection manager is TCP's
	UCX_TLS=weft_tcp,$chosen \
		try "$v: by socket address, blocking, error handling" \
		gpu "$v" sock peer block max=1 values
	UCX_TLS=$chosen try "$v: 4,000 messages" gpu "$v" max=2 many
	carried "$v"
	beside_nvl "$v"
	host_memory "$v"
	IGNORE='was not \(matched\|returned\)' UCX_TLS=$chosen \
		try "$v: a killed peer" gpu "$v" peer max=4 killed
done
tap_done
