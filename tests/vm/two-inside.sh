#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One of the two hosts of two.sh: host 0 listens, host 1 connects to it.
. "${WEFT_SRC:?}/tests/host/common.sh"

node=${WEFT_TEST_NODE:?}
side=wait
test "$node" = 0 || side=come
program=${WEFT_TEST_EXCHANGE:?}
# to weft itself these are no settings
export -n WEFT_TEST_NODE WEFT_TEST_EXCHANGE
tap_folder
WEFT_OFFLINE=1 find_builds
v=${versions[-1]}
export UCX_TLS=weft_ib,weft_tcp UCX_NET_DEVICES=rxe0:1,eth0
export UCX_WARN_UNUSED_ENV_VARS=n EXCHANGE_ALARM=400
large=88080388 all=111574640 # what these move each way
port=7000

told='nothing to report'
try() # NAME STATUS MODE: no warning but $told
{
	local name="host $node, $v: $1" rc
	rm -f "$tap_tmp/stats"
	WEFT_STATS=$tap_tmp/stats under "$v" "$program" $side \
		10.77.1.1:$((++port)) sock=10.77.1.1 peer block "$3" \
		>"$tap_tmp/said" 2>&1
	rc=$?
	if test $rc != "$2"; then
		tap_not_ok "$name" "status $rc" "$(cat "$tap_tmp/said")"
	elif test -n "$quiet" &&
			grep 'weft: \|UCX  *\(WARN\|ERROR\)' "$tap_tmp/said" |
			grep -qv "$told"; then
		tap_not_ok "$name: prints nothing" "$(cat "$tap_tmp/said")"
	else
		tap_ok "$name"
	fi
}

carried() # BYTES
{
	between "host $node: weft_ib carries" "$1" \
		$(($(of ib tx_put_bytes) + $(of ib get_bytes) +
			$(of ib tx_message_bytes))) $(($1 * 11 / 10))
	between "host $node: weft_tcp next to nothing" 0 \
		"$(of tcp wire_tx_bytes)" 131072
}

quiet=yes
try "by socket address" 0 all
carried $all
try "large messages" 0 large
carried $large
told='its TCP connection ended'
try "a killed peer" $((node ? 137 : 0)) killed
# this one is warned of
quiet=
if test "$node" = 1; then
	echo "# host 1 vanishes"
	# the words are out before their machine is gone
	sync
	sleep 2
	export EXCHANGE_GONE=/proc/sysrq-trigger
fi
try "a host that is gone" 0 killed
tap_done
