# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Real UCX with GPU memory, on a fake driver that stands as libcuda.so.1 before
# UCX and weft alike: two processes, each with a GPU of its own. To be sourced.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

fake=$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so
test -e "$fake" || tap_skip_all "the fake driver is not built"
tap_folder
find_builds
driver=$tap_tmp/driver
mkdir "$driver" "$tap_tmp/ipc"
ln -s "$fake" "$driver/libcuda.so.1"
ln -s "$fake" "$driver/libnvidia-ml.so.1"
build_program exchange exchange.c host.c transfer.c || tap_skip_all "cannot build"
build_program gpu gpu.c gpu_speed.c host.c transfer.c ../../gpu/nvlink/gpumem.c \
	../../gpu/nvlink/pattern_ptx.c "$WEFT_BUILD/util/.libs/libutil.a" ||
	tap_skip_all "cannot build"

export WEFT_LIBCUDA=$driver/libcuda.so.1 WEFT_RUN_DIR=$tap_tmp/run
mkdir "$WEFT_RUN_DIR"
export UCX_NET_DEVICES=lo UCX_WARN_UNUSED_ENV_VARS=n UCX_HANDLE_ERRORS=none
# The fake's memory was there before UCX looks, and is readable, unlike a GPU's.
export UCX_MEMTYPE_CACHE=n
# Against hangs alone: two sides that spin on two busy cores take minutes.
export EXCHANGE_ALARM=${EXCHANGE_ALARM:-300}
large=$((4 * (1 + 4) << 20)) # what `gpu max=4 large` moves each way

builds_with_cuda

# Two sides of PROGRAM under one version; statistics in $tap_tmp/stats.
two() # PROGRAM VERSION ARGUMENT...
{
	local program=$1 v=$2 lib pid rc stats=$tap_tmp/stats
	shift 2
	lib=$(lib_of "$v"):$driver
	rm -f "$stats"
	env LD_LIBRARY_PATH="$lib" WEFT_STATS="$stats" "$PRELOAD_BOTH" \
		${WAIT-} "$tap_tmp/$program" wait "$tap_tmp/meet" gpu=0 "$@" \
		>"$tap_tmp/wait" 2>&1 &
	pid=$!
	env LD_LIBRARY_PATH="$lib" WEFT_STATS="$stats" "$PRELOAD_BOTH" \
		${COME-} "$tap_tmp/$program" come "$tap_tmp/meet" gpu=1 "$@" \
		>"$tap_tmp/come" 2>&1
	rc=$?
	wait "$pid" || return 1
	test "$rc" = 0 || { test "$rc" = 137 && test "${*: -1}" = killed; }
}

try() # NAME PROGRAM VERSION ARGUMENT...
{
	local name=$1
	shift
	if ! two "$@"; then
		tap_not_ok "$name" "$(words)"
	else
		says_nothing "$name" "${IGNORE:-nothing to ignore}"
	fi
}
