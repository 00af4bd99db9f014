#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# GPU memory through real UCX over weft_ib, by the adapter itself, on a fake
# adapter and a fake driver: memory that the processor cannot touch, every byte
# checked, who carried it, and that nobody copied it. Two processes, each with a
# GPU and a port of its own; the oldest UCX that can and the newest.
. "$(dirname "$0")/common.sh"
. "$WEFT_SRC/tests/lib/verbs.sh"

verbs_inside "$0" "$@"
tap_folder
find_builds
driver=$tap_tmp/driver
mkdir "$driver"
for name in libcuda.so.1 libnvidia-ml.so.1; do
	ln -s "$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so" "$driver/$name"
done
build_program exchange exchange.c host.c transfer.c || tap_skip_all "cannot build"
build_program gpu gpu.c gpu_speed.c host.c transfer.c ../gpu/gpumem.c \
	../gpu/pattern_ptx.c "$WEFT_BUILD/util/.libs/libutil.a" ||
	tap_skip_all "cannot build"
verbs_setup "$tap_tmp" || tap_skip_all "nothing can be put over /sys/class here"

export WEFT_LIBCUDA=$driver/libcuda.so.1 WEFT_RUN_DIR=$tap_tmp/run
mkdir "$WEFT_RUN_DIR"
export UCX_TLS=weft_ib,cuda_copy UCX_WARN_UNUSED_ENV_VARS=n UCX_MEMTYPE_CACHE=n
export WEFT_TEST_CUDA_DMABUF=1 WEFT_TEST_CUDA_GUARDED=1
export EXCHANGE_ALARM=${EXCHANGE_ALARM:-60}
large=$((4 * (1 + 4) << 20)) # what `gpu max=4 large` moves each way
hosts=88080388               # and `exchange large`

builds_with_cuda

# Two sides of PROGRAM under one version; statistics in $tap_tmp/stats.
two() # PROGRAM VERSION ARGUMENT...
{
	local program=$1 v=$2 lib pid rc stats=$tap_tmp/stats
	shift 2
	lib=$(lib_of "$v"):$verbs:${DRIVER-$driver}
	rm -f "$stats" "$WEFT_TEST_VERBS"
	env LD_LIBRARY_PATH="$lib" WEFT_STATS="$stats" "$PRELOAD_BOTH" \
		UCX_NET_DEVICES=fake0:1 \
		"$tap_tmp/$program" wait "$tap_tmp/meet" "$@" \
		>"$tap_tmp/wait" 2>&1 &
	pid=$!
	env LD_LIBRARY_PATH="$lib" WEFT_STATS="$stats" "$PRELOAD_BOTH" \
		UCX_NET_DEVICES=fake1:1 ${COME-} \
		"$tap_tmp/$program" come "$tap_tmp/meet" "$@" \
		>"$tap_tmp/come" 2>&1
	rc=$?
	wait "$pid" && test "$rc" = 0
}

try() # NAME PROGRAM VERSION ARGUMENT...: no warning but $IGNORE
{
	local name=$1
	shift
	if ! two "$@"; then
		tap_not_ok "$name" "$(words)"
	else
		says_nothing "$name" "${IGNORE:-nothing to ignore}"
	fi
}

copies() # of the fake drivers of both sides
{
	sed -n 's/^gpu: \([0-9]*\) copies$/\1/p' "$tap_tmp"/{wait,come} |
		awk '{ n += $1 } END { print NR == 2 ? n : "unknown" }'
}

by_ib() # NAME BYTES: as puts and gets, and nothing else
{
	between "$1: by weft_ib" "$2" \
		$(($(of ib tx_put_bytes) + $(of ib get_bytes))) "$2"
	between "$1: no byte goes twice" 1 "$(of ib tx_message_bytes)" 65536
	between "$1: TCP is for queue pairs alone" 0 \
		"$(of tcp wire_tx_bytes)" 65536
}

direct() # VERSION
{
	local v=$1
	export WEFT_IB_GPU_DIRECT=auto
	try "$v: large messages" gpu "$v" peer max=4 large
	by_ib "$v: large messages" $((2 * large))
	tap_equal "$v: and nobody copied them" "$(copies)" 0
	UCX_RNDV_SCHEME=put_zcopy \
		try "$v: scheme put" gpu "$v" peer max=4 large
	between "$v: scheme put: as puts" $((2 * large)) \
		"$(of ib tx_put_bytes)" $((2 * large))
	tap_equal "$v: scheme put: and nobody copied them" "$(copies)" 0
	try "$v: every size and allocator" gpu "$v" peer max=1 values
	try "$v: host memory" exchange "$v" peer large
	by_ib "$v: host memory" $((2 * hosts))
}

# One side has it, the other goes through its host memory: since it is off, or
# since one of its ports cannot.
halves() # VERSION
{
	local why="GPU_DIRECT is on, but 'fake1:1' takes none"
	COME='env WEFT_IB_GPU_DIRECT=off' \
		try "$1: a peer without" gpu "$1" peer max=4 large
	between "$1: a peer without: by weft_ib" $((2 * large)) \
		$(($(of ib tx_put_bytes) + $(of ib get_bytes) +
			$(of ib tx_message_bytes))) $((2 * large + 262144))
	COME='env WEFT_IB_GPU_DIRECT=on WEFT_TEST_VERBS_NO_DMABUF=1
		UCX_NET_DEVICES=fake0:1,fake1:1' IGNORE=$why \
		try "$1: a port that cannot" gpu "$1" peer max=4 large
	tap_equal "$1: a port that cannot: it is said once" \
		"$(grep -c "$why" "$tap_tmp/come")" 1
}

# Where it reaches, it carries all.
beside_nvlink() # VERSION
{
	UCX_TLS=weft_nvl,weft_ib,cuda_copy \
		try "$1: beside weft_nvl" gpu "$1" peer max=4 large
	between "$1: beside weft_nvl: by that" $((2 * large)) \
		$(($(of nvlink tx_put_bytes) + $(of nvlink get_bytes))) \
		$((2 * large))
	tap_equal "$1: beside weft_nvl: not by weft_ib" \
		"$(($(of ib tx_put_bytes) + $(of ib get_bytes)))" 0
}

# Through host memory, as ever.
off() # VERSION
{
	unset WEFT_IB_GPU_DIRECT
	try "$1: not asked for" gpu "$1" peer max=4 large
	between "$1: not asked for: it is copied" 1 "$(copies)" 1000000
	protocols "$1" >"$tap_tmp/unset"
	WEFT_IB_GPU_DIRECT=off protocols "$1" >"$tap_tmp/off"
	(unset WEFT_TEST_CUDA_DMABUF
	 WEFT_IB_GPU_DIRECT=auto protocols "$1" >"$tap_tmp/unable")
	WEFT_IB_GPU_DIRECT=auto protocols "$1" >"$tap_tmp/auto"
	tap_equal "$1: off: the same protocols" "$(cat "$tap_tmp/off")" \
		"$(cat "$tap_tmp/unset")"
	tap_equal "$1: auto: others" \
		"$(cmp -s "$tap_tmp/auto" "$tap_tmp/unset" && echo same)" ''
	tap_equal "$1: a driver without dma-bufs: the same protocols" \
		"$(cat "$tap_tmp/unable")" "$(cat "$tap_tmp/unset")"
}

protocols() # VERSION
{
	UCX_PROTO_INFO=y two gpu "$1" lanes
	grep -h '^#\|[|]' "$tap_tmp/wait" | sed -e 's/^\[[^]]*\] *\[[^]]*\] *//' \
		-e 's/0x[0-9a-f]*//g' -e '/peer:\|transfers/d'
}

# A driver that is there, and that nobody has initialised: cuInit() of this one
# never returns.
nobody_has_a_gpu() # VERSION
{
	local why='UCX_TLS leaves out cuda_copy'
	DRIVER=/nosuch UCX_TLS=weft_ib WEFT_IB_GPU_DIRECT=on \
		WEFT_TEST_CUDA_HANG=1 IGNORE=$why \
		try "$1: without CUDA" exchange "$1" peer large
	by_ib "$1: without CUDA" $((2 * hosts))
	tap_equal "$1: without CUDA: each side says once why" \
		"$(cat "$tap_tmp"/{wait,come} | grep -c "GPU_DIRECT is on, but $why")" 2
}

for v in "${capable[@]}"; do
	direct "$v"
	halves "$v"
	beside_nvlink "$v"
	off "$v"
	nobody_has_a_gpu "$v"
done
tap_done
