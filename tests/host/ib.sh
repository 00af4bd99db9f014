#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Data through real UCX over weft_ib, every byte checked, and who carried it;
# both processes on the first active port. Where there is no adapter,
# tests/vm/ucx.sh runs this on Soft-RoCE, "ends": all of it under the oldest UCX
# and the newest, under the others large messages. "few", as tests/vm/inside.sh
# runs it: large messages under those two, and a socket address.
. "$(dirname "$0")/common.sh"

port=
for state in /sys/class/infiniband/*/ports/*/state; do
	grep -q ACTIVE "$state" 2>/dev/null || continue
	port=${state#/sys/class/infiniband/}
	port=${port%/state}
	port=${port/\/ports\//:}
	break
done
test -n "$port" || tap_skip_all "no active port of a verbs device here"
grep -q 'HAVE_VERBS_H 1' "$WEFT_BUILD/config.h" ||
	tap_skip_all "built without rdma-core's headers"
tap_folder
find_builds
whole=" ${versions[*]} "
case ${1-} in
ends)	whole=" ${versions[0]} ${versions[-1]} " ;;
few)	whole=''
	test ${#versions[@]} -lt 3 ||
		versions=("${versions[0]}" "${versions[-1]}") ;;
esac
build_program exchange exchange.c host.c transfer.c || tap_skip_all "cannot build"
export UCX_TLS=weft_ib UCX_NET_DEVICES=$port UCX_WARN_UNUSED_ENV_VARS=n
export EXCHANGE_ALARM=${EXCHANGE_ALARM:-60}
large=88080388 all=111574640 # what these move each way

told='nothing to report'
try() # NAME VERSION ARGUMENT...: no warning but $told
{
	local name=$1 v=$2 stats=$tap_tmp/stats
	shift 2
	rm -f "$stats"
	if ! WEFT_STATS=$stats exchange "$v" "$v" "$@"; then
		tap_not_ok "$name" "$(words)"
	else
		says_nothing "$name" "$told"
	fi
}

for v in "${versions[@]}"; do
	found=$(under "$v" "${prefix_of[$v]}/bin/ucx_info" -d 2>&1 |
		grep -A1 'Transport: weft_ib' | grep -c "Device: $port\$")
	tap_equal "$v: ucx_info lists weft_ib on $port" "$found" 1
	found=$(UCX_NET_DEVICES=auto under "$v" \
		"${prefix_of[$v]}/bin/ucx_info" -p -u t 2>&1 |
		grep -c "weft_ib/$port\( \|\$\)")
	tap_equal "$v: UCX_NET_DEVICES=auto leaves it there" "$found" 1
	try "$v: large messages" "$v" peer large
	between "$v: they go by zero-copy" $((2 * large)) \
		$(($(of ib tx_put_bytes) + $(of ib get_bytes))) \
		$((2 * large + 65536))
	between "$v: large messages use no active messages" 1 "$(of ib tx_message_bytes)" 65536
	between "$v: TCP carries no data" 0 \
		"$(of tcp wire_tx_bytes)" 65536
	case $whole in
	*" $v "*)	;;
	*)	continue ;;
	esac
	try "$v: by address" "$v"
	try "$v: by address, blocking" "$v" block eps=3
	try "$v: data end the sleep of a program that polls an event fd" "$v" spin
	try "$v: a fence between puts" "$v" fence
	told="'$port' lost its peer .*: its TCP connection ended"
	try "$v: a killed peer" "$v" peer killed
	tap_equal "$v: one warning says that the peer is lost" \
		"$(grep -c "$told" "$tap_tmp/wait")" 1
	told='nothing to report'
done
# UCX wants the interface of a socket address among its devices
v=${versions[-1]}
netdev=$(cat "/sys/class/infiniband/${port%:*}/ports/${port#*:}/gid_attrs/ndevs/0" \
	2>/dev/null)
ip=$(ip -o -4 address show dev "${netdev:-none}" 2>/dev/null |
	awk '{ sub("/.*", "", $4); print $4; exit }')
if test -n "$ip"; then
	UCX_TLS=weft_ib,weft_tcp UCX_NET_DEVICES=$port,$netdev \
		try "$v: by socket address, error handling" \
		"$v" "sock=$ip" peer block
	between "$v: weft_ib carries" $((2 * all)) \
		$(($(of ib tx_put_bytes) + $(of ib get_bytes) +
			$(of ib tx_message_bytes))) $((2 * all * 11 / 10))
	between "$v: weft_tcp next to nothing" 0 \
		"$(of tcp wire_tx_bytes)" 262144
else
	tap_skip "by socket address" "'$netdev' has no IPv4 address"
fi
tap_done
