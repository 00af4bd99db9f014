#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# NCCL's plugin on two Soft-RoCE devices, in the emulated machine: what it does
# over TCP it does over them, in every version of NCCL's interface, and it is
# they that carry it; where a rank has none, or may not use them, TCP does.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder
plugin=${WEFT_BUILD:?}/nccl_net/.libs/libnccl-net-weft.so
# Queue pairs are exchanged over lo, and that is also what TCP would take. An
# emulated rank may be slow to answer: that is no reason for TCP.
unset WEFT_NET_DEVICES
export NCCL_SOCKET_IFNAME=lo WEFT_CONNECT_TIMEOUT=300s
ranks=(--env 0:NCCL_IB_HCA==rxe0:1 --env 1:NCCL_IB_HCA==rxe1:1
	--env 2:NCCL_IB_HCA=^rxe1 --env 3:NCCL_IB_HCA=rxe1)

perf() # OPTION... -- CASE...: prints what went wrong
{
	local options=("${ranks[@]}")
	while test "$1" != --; do
		options+=("$1")
		shift
	done
	shift
	rm -f "$tap_tmp/stats"
	# shellcheck disable=SC2046 # words
	WEFT_STATS=$tap_tmp/stats "$WEFT_BUILD"/tools/weft perf --check \
		--timeout 120 "${options[@]}" \
		$(printf -- '--case %s ' "$@") "$plugin" 2>&1 |
		grep -v '^v[0-9]* *[a-z-]* *ok '
}

sum() # DEVICE COUNTER, of all ranks
{
	grep "\"weft\":\"$1\"" "$tap_tmp/stats" 2>/dev/null |
		sed "s/.*\"$2\":\([0-9]*\).*/\1/" |
		awk '{ n += $1 } END { print n + 0 }'
}

between() # NAME LEAST SEEN MOST
{
	if test "$3" -ge "$2" && test "$3" -le "$4"; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "seen $3, wanted $2 to $4"
	fi
}

# What the sizes of these cases add up to, of those that are not messages.
late_send=3175728
both_ways=25596032
all_whole=(unaligned both-ways late-receive early-completion register-beside
	two-contexts self ring too-large)
whole=52445413
# Comms closed with requests out, and a rank that is killed, which counts no
# more: of three times 8 MiB each way and of 4 MiB what had left by then, and
# 100,000 bytes each way after the one and before the other.
ends_least=300000 ends_most=$((3 * 2 * (8 << 20) + (4 << 20) + 300000))

seen=$("$WEFT_BUILD"/tools/weft perf --check --case properties "$plugin" 2>&1)
if grep -q " 2 devices, 'rxe0:1', [1-9]" <<<"$seen"; then
	tap_ok "both ports are devices"
else
	tap_not_ok "both ports are devices" "$seen"
fi

tap_nothing "most checks" "$(perf -- "${all_whole[@]}")"
tap_equal "the adapters carry them, once" "$(sum ib tx_put_bytes)" $whole
tap_equal "TCP carries no block" "$(sum tcp tx_put_bytes)" 0
between "TCP is for queue pairs alone" 1 "$(sum tcp tx_message_bytes)" 32768

tap_nothing "comms and a rank that end in the middle" \
	"$(perf -- close-in-flight peer-killed)"
between "the adapters carry what had left" $ends_least "$(sum ib tx_put_bytes)" \
	$ends_most
tap_equal "TCP carries none of it" "$(sum tcp tx_put_bytes)" 0

for api in 6 7 8 9 10 11 12; do
	tap_nothing "version $api" "$(perf --api $api -- late-send)"
	tap_equal "version $api: the adapters carry it, once" \
		"$(sum ib tx_put_bytes)" $late_send
	tap_equal "version $api: TCP carries no block" \
		"$(sum tcp tx_put_bytes)" 0
done

# NCCL's own variable, and a rank that wants fewer
tap_nothing "several queue pairs" "$(perf \
	--env 0:NCCL_IB_QPS_PER_CONNECTION=4 --env 1:WEFT_IB_QPS=2 -- \
	"${all_whole[@]}")"
tap_equal "several queue pairs: the adapters carry them, once" \
	"$(sum ib tx_put_bytes)" $whole
tap_equal "several queue pairs: TCP carries no block" \
	"$(sum tcp tx_put_bytes)" 0

falls() # NAME VARIABLE
{
	tap_nothing "$1" "$(perf --env "$2" -- both-ways)"
	tap_equal "$1: TCP carries it, once" "$(sum tcp tx_put_bytes)" \
		$both_ways
	tap_equal "$1: the adapters carry nothing" "$(sum ib wire_tx_bytes)" 0
}
falls "a rank with NCCL_IB_DISABLE=1" 1:NCCL_IB_DISABLE=1
falls "a rank without an adapter" 0:NCCL_IB_HCA=mlx5

# GPU memory, of the fake driver, where the other rank takes none
export WEFT_LIBCUDA=$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so
export NCCL_MIN_NCHANNELS=20 NCCL_BUFFSIZE=8388608
tap_nothing "GPU memory to host memory" "$(perf --memory gpu,host \
	--env 1:WEFT_NCCL_NVLINK=off -- both-ways)"
tap_equal "GPU memory: the adapters carry it, once" "$(sum ib tx_put_bytes)" \
	$both_ways
tap_equal "GPU memory: TCP carries no block" "$(sum tcp tx_put_bytes)" 0
tap_done
