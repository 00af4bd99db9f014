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

perf() # OPTION...: prints what went wrong
{
	rm -f "$tap_tmp/stats"
	WEFT_STATS=$tap_tmp/stats "$WEFT_BUILD"/tools/weft perf --check \
		--timeout 120 "$@" "$plugin" 2>&1 |
		grep -v -e '^v[0-9]* *[a-z-]* *ok ' \
			-e '^v[0-9]* *grouped *skipped'
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

cases() # NAME...
{
	printf -- '--case %s ' "$@"
}

# 64 messages each way, four times, each too large for anything but a put
both_ways=25596032

seen=$("$WEFT_BUILD"/tools/weft perf --check --case properties "$plugin" 2>&1)
grep -q ' 2 devices' <<<"$seen" ||
	tap_not_ok "both ports are devices" "$seen"

# all that takes no second by itself
tap_nothing "most checks" "$(perf "${ranks[@]}" $(cases properties sizes \
	unaligned in-flight late-receive late-send early-completion \
	register-beside listen-reuse two-contexts threads self ring reload \
	close-in-flight too-large peer-killed))"
between "the adapters carry them, once" 165000000 \
	"$(sum ib tx_put_bytes)" 400000000
tap_equal "TCP carries no block of them" "$(sum tcp tx_put_bytes)" 0
between "and exchanges queue pairs alone" 1 \
	"$(sum tcp tx_message_bytes)" 65536

for api in 6 7 8 9 10 11 12; do
	tap_nothing "version $api" "$(perf --api $api "${ranks[@]}" \
		$(cases properties both-ways early-completion))"
	between "version $api: the adapters carry it, once" $both_ways \
		"$(sum ib tx_put_bytes)" $((both_ways + 65536))
	tap_equal "version $api: TCP carries no block" \
		"$(sum tcp tx_put_bytes)" 0
done

falls() # NAME OPTION...
{
	local name=$1
	shift
	tap_nothing "$name" "$(perf "$@" $(cases both-ways))"
	between "$name: TCP carries it, once" $both_ways \
		"$(sum tcp tx_put_bytes)" $((both_ways + 65536))
	tap_equal "$name: the adapters carry nothing" \
		"$(sum ib wire_tx_bytes)" 0
}
falls "a rank with NCCL_IB_DISABLE=1" "${ranks[@]}" --env 1:NCCL_IB_DISABLE=1
falls "the connecting rank has none" "${ranks[@]}" --env 0:NCCL_IB_HCA=mlx5
tap_done
