#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Data through real UCX, every byte checked, on every version at hand.
. "$(dirname "$0")/common.sh"

tap_folder
find_builds
build_program exchange exchange.c host.c transfer.c || tap_skip_all "cannot build"
export UCX_TLS=weft_tcp UCX_NET_DEVICES=lo UCX_WARN_UNUSED_ENV_VARS=n
export EXCHANGE_ALARM=${EXCHANGE_ALARM:-60}

try() # NAME VERSION VERSION ARGUMENT...
{
	local name=$1
	shift
	if ! exchange "$@"; then
		tap_not_ok "$name" "$(words)"
	else
		says_nothing "$name" "${IGNORE:-nothing to ignore}"
	fi
}

# 88080388: what "large" moves each way
carried()
{
	local v=$1 stats=$tap_tmp/stats puts gets messages
	rm -f "$stats"
	WEFT_STATS=$stats try "$v: large messages with error handling" \
		"$v" "$v" peer large
	puts=$(counter "$stats" tx_put_bytes)
	gets=$(counter "$stats" get_bytes)
	messages=$(counter "$stats" tx_message_bytes)
	between "$v: large messages are put or got" $((2 * 88080388)) \
		$((puts + gets)) $((2 * 88080388 + 65536))
	between "$v: large messages use no active messages" 1 "$messages" 65536
	tap_equal "$v: large messages are gets, not puts" "$puts" 0
}

# With glibc's own check of the heap, where it is at hand.
headers()
{
	local v=$1 checks=/usr/lib/$(uname -m)-linux-gnu/libc_malloc_debug.so.0
	test -e "$checks" || checks=
	MALLOC_CHECK_=3 PRELOAD_BOTH="LD_PRELOAD=$checks${checks:+:}$preload" \
		try "$v: active messages with the longest header" \
		"$v" "$v" headers
}

for v in "${versions[@]}"; do
	found=$(under "$v" "${prefix_of[$v]}/bin/ucx_info" -d 2>&1 |
		grep -c 'Transport: weft_tcp')
	tap_equal "$v: ucx_info lists weft_tcp on lo and others" \
		"$((found >= 1))" 1
	try "$v: by address" "$v" "$v"
	try "$v: by address, blocking, three endpoints" "$v" "$v" block eps=3
	try "$v: by socket address, error handling, blocking" \
		"$v" "$v" sock peer block
	try "$v: data end the sleep of a program that polls an event fd" "$v" "$v" spin
	headers "$v"
	try "$v: a fence between puts" "$v" "$v" fence
	UCX_FENCE_MODE=weak try "$v: a weak fence between puts" "$v" "$v" fence
	UCX_FENCE_MODE=strong try "$v: a strong fence between puts" \
		"$v" "$v" fence
	# a program without an error handler finds them in UCX's log
	IGNORE='error during flush' try "$v: one leaves" "$v" "$v" late
	try "$v: one leaves, with error handling" "$v" "$v" peer late
	# its next message may have come before its receive, and stays in UCX
	IGNORE='was not matched' try "$v: a killed peer" "$v" "$v" peer killed
	carried "$v"
done

newest=${versions[-1]}
WEFT_FAMILY=ipv6 try "$newest: IPv6 by address" "$newest" "$newest"
WEFT_FAMILY=ipv6 try "$newest: IPv6 by socket address" "$newest" "$newest" \
	sock=::1 peer block

# Which pairs stock UCX itself allows: by address all; by socket address not
# with 1.13 (its connection manager rejects, and is rejected).
for v in "${versions[@]}"; do
	test "$v" = "$newest" && continue
	try "$newest and $v by address" "$newest" "$v" peer
	test "$(minor_of "$v")" = 13 ||
		try "$v and $newest by socket address" "$v" "$newest" sock peer
done
tap_done
