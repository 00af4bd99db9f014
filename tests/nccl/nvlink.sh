#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# NCCL's plugin with NVLink offered, over the fake driver: which wire a pair
# takes, that both wires move host and GPU memory, and that all of it passes what
# the plugin passes over TCP.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder
export WEFT_LIBCUDA=${WEFT_BUILD:?}/tests/lib/.libs/libfake_cuda.so
export WEFT_RUN_DIR=$tap_tmp
plugin=$WEFT_BUILD/nccl_net/.libs/libnccl-net-weft.so
preload=$WEFT_LIBCUDA
test -z "$WEFT_SANITIZED" || preload=	# the sanitizer wants to be first
export WEFT_TEST_CUDA_DELAY=50

perf() # OPTION...: prints what went wrong
{
	rm -f "$tap_tmp/stats"
	WEFT_STATS=$tap_tmp/stats "$WEFT_BUILD"/tests/nccl/perf/nccl_perf --check "$@" \
		"$plugin" 2>&1 | grep -v -e '^v[0-9]* *[a-z-]* *ok ' \
		-e '^v[0-9]* *grouped *skipped'
}

# Bytes that a device put, of all ranks.
put_by() # DEVICE
{
	grep "\"weft\":\"$1\"" "$tap_tmp/stats" 2>/dev/null |
		sed 's/.*"tx_put_bytes":\([0-9]*\).*/\1/' |
		awk '{ n += $1 } END { print n + 0 }'
}

# sizes moves 148 MB, nearly all of it as puts: all by one wire, and once.
carries() # NAME DEVICE OTHER OPTION...
{
	local name=$1 device=$2 other=$3 seen bytes
	shift 3
	seen=$(perf --case sizes "$@")
	tap_nothing "$name: every size arrives" "$seen"
	bytes=$(put_by "$device")
	if test "$bytes" -gt 140000000 && test "$bytes" -lt 160000000; then
		tap_ok "$name: $device carries it, once"
	else
		tap_not_ok "$name: $device carries it, once" "$bytes bytes"
	fi
	tap_equal "$name: $other carries nothing" "$(put_by "$other")" 0
}

# All that is quick: peer-busy and peer-stopped wait for eight seconds each, and
# do so once; sizes is what carries() runs.
most()
{
	perf $(printf -- '--case %s ' properties unaligned in-flight \
		both-ways late-receive late-send early-completion grouped \
		register-beside listen-reuse many-comms two-contexts threads \
		connect-beside self ring reload close-in-flight too-large peer-killed) "$@"
}

carries "GPU to GPU" nvlink tcp --memory gpu
carries "no common device node" nvlink tcp --memory gpu \
	--env 0:WEFT_TEST_CUDA_NODES=0 --env 1:WEFT_TEST_CUDA_NODES=1 \
	--env 0:WEFT_NCCL_NVLINK=on --env 1:WEFT_NCCL_NVLINK=on
carries "GPU to a rank with WEFT_NCCL_NVLINK=off" tcp nvlink \
	--memory gpu,host --env 1:WEFT_NCCL_NVLINK=off
carries "a rank with WEFT_NCCL_NVLINK=off to a GPU" tcp nvlink \
	--memory host,gpu --env 0:WEFT_NCCL_NVLINK=off
if test -n "$preload"; then
	export LD_PRELOAD=$preload
	carries "GPU to host memory" nvlink tcp --memory gpu,host
	carries "host memory to GPU" nvlink tcp --memory host,gpu
	carries "host memory to host memory" nvlink tcp --memory host
	unset LD_PRELOAD
fi

tap_nothing "most checks, GPU memory" "$(most --memory gpu)"
# A version is a table of its own over one implementation, which
# conformance.sh takes through every check by TCP.
if test -n "${WEFT_TEST_LONG-}"; then
	tap_nothing "most checks, GPU memory, every version" \
		"$(WEFT_NCCL_NVLINK=on most --case sizes --all-api \
			--memory gpu)"
else
	tap_nothing "GPU memory, every version" \
		"$(WEFT_NCCL_NVLINK=on perf --all-api --memory gpu \
			--case properties --case unaligned \
			--case early-completion)"
fi
tap_nothing "a rank that is busy or stopped, GPU memory" \
	"$(WEFT_PEER_TIMEOUT=500ms perf --case peer-busy --case peer-stopped \
		--memory gpu)"
tap_nothing "most checks, GPU memory by TCP" \
	"$(most --memory gpu,host --env 1:WEFT_NCCL_NVLINK=off \
		--env 3:WEFT_NCCL_NVLINK=off)"
tap_nothing "most checks, host memory and GPU memory by TCP" \
	"$(most --memory host,gpu --env 0:WEFT_NCCL_NVLINK=off \
		--env 2:WEFT_NCCL_NVLINK=off)"
tap_nothing "most checks, a driver without stream writes" \
	"$(WEFT_TEST_CUDA_NO_WRITE=1 most --case sizes --memory gpu)"
# tests/unit/devices/nvl_copy_test.c counts the calls
for batch in old no; do
	tap_nothing "copies handed over in batches: $batch" "$(
		WEFT_TEST_CUDA_BATCH=$batch perf --case sizes \
			--memory gpu)"
done

# What ranks must have in common, and who says so.
seen=$(perf --case sizes --memory gpu --env 1:NCCL_BUFFSIZE=8388608)
if grep -q "NCCL_BUFFSIZE here 4 MiB, there 8 MiB" <<<"$seen"; then
	tap_ok "ranks that reported different things to NCCL log both"
else
	tap_not_ok "ranks that reported different things to NCCL log both" "$seen"
fi
tap_nothing "in NVLink they need not agree, introductions or not" "$(
	for introduce in auto off; do
		WEFT_NCCL_INTRODUCE=$introduce perf --case sizes \
			--memory gpu,host --env 1:WEFT_NCCL_NVLINK=off
	done)"
tap_nothing "a buffer size that is NCCL's own default is no difference" "$(
	WEFT_NCCL_NVLINK=off perf --case sizes --env 1:NCCL_BUFFSIZE=4194304)"
tap_nothing "the user's own settings stay, NVLink or not" "$(
	NCCL_MIN_NCHANNELS=2 NCCL_BUFFSIZE=1048576 perf --case sizes \
		--memory gpu,host --env 1:WEFT_NCCL_NVLINK=off)"
properties() # OPTION...
{
	${around-} "$WEFT_BUILD"/tests/nccl/perf/nccl_perf --check --case properties "$@" "$plugin" |
		grep -o '[0-9]* device.*Mbit/s'
}
tap_equal "one GPU in the host and none elsewhere: not offered" \
	"$(WEFT_TEST_CUDA_NODES=0 properties --memory gpu)" "$(properties)"
tap_equal "the device list is the same, but for its speed" \
	"$(properties --memory gpu | sed 's/,[^,]*$//')" \
	"$(properties | sed 's/,[^,]*$//')"
# what cannot be shared between processes cannot carry their bytes
for what in memfd seals; do
	around="$WEFT_BUILD/tests/lib/refuse $what"
	if ! $around true 2>/dev/null; then
		tap_skip "without $what" "no seccomp filter can be had here"
		continue
	fi
	tap_equal "a sandbox without $what: not offered" \
		"$(around=$around properties --memory gpu)" \
		"$(around= properties)"
done
around=
tap_equal "NCCL before 2.26: not offered unless asked for" \
	"$(properties --api 9 --memory gpu)" "$(properties --api 9)"
tap_done
