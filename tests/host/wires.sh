#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Two hosts (network namespaces) and two wires between them. UCX makes a lane
# over each, every byte is checked, and both wires carry their part; a peer that
# is cut off is reported, one that is busy is not. The oldest UCX here and the
# newest.
. "$(dirname "$0")/common.sh"

large=88080388 # what "large" moves each way

if test "${1-}" != inside; then
	find_builds
	unshare -n true 2>/dev/null ||
		tap_skip_all "no network namespace to be had here"
	# there is no way out from there, and all is fetched
	WEFT_OFFLINE=1 exec unshare -n bash "$0" inside
fi

tap_folder
find_builds
build_program exchange exchange.c host.c transfer.c || tap_skip_all "cannot build"
unshare -n sleep 600 &
other=$!
trap 'kill $other; rm -rf "$tap_tmp"' EXIT

wire() # NUMBER: w0 here and w0 there, 10.7.0.1 and 10.7.0.2
{
	ip link add "w$1" type veth peer name p && ip link set p netns $other &&
	nsenter -t $other -n ip link set p name "w$1" &&
	ip addr add "10.7.$1.1/24" dev "w$1" && ip link set "w$1" up &&
	nsenter -t $other -n ip addr add "10.7.$1.2/24" dev "w$1" &&
	nsenter -t $other -n ip link set "w$1" up
}
until test "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)" ||
	! kill -0 $other; do
	sleep 0.01
done
wire 0 && wire 1 || tap_skip_all "no veth interfaces to be had here"

export UCX_TLS=weft_tcp UCX_WARN_UNUSED_ENV_VARS=n
export UCX_NET_DEVICES=w0,w1 EXCHANGE_ALARM=60
# unquoted where it is used: words of a command
PRELOAD_COME="nsenter -t $other -n env LD_PRELOAD=$preload"

sent() # NETDEV: bytes that the kernel has sent by it, from here
{
	ip -s -o link show dev "$1" | awk '{ for (i = 1; i < NF; i++)
		if ($i == "TX:") { print $(i + 8); exit } }'
}

rail() # NETDEV COUNTER: its sum over both sides
{
	grep "\"netdev\":\"$1\"" "$tap_tmp/stats" >"$tap_tmp/part"
	counter "$tap_tmp/part" "$2"
}

rails() # VERSION
{
	local v=$1 name="$1: over two interfaces" dev wire moved sum=0
	local -A before
	for dev in w0 w1; do
		before[$dev]=$(sent $dev)
	done
	rm -f "$tap_tmp/stats"
	if ! WEFT_STATS=$tap_tmp/stats exchange "$v" "$v" peer large; then
		tap_not_ok "$name" "$(words)"
		return
	elif grep -q 'weft: \|UCX  *\(WARN\|ERROR\)' "$tap_tmp"/{wait,come}; then
		tap_not_ok "$name: prints nothing" "$(words)"
	else
		tap_ok "$name"
	fi
	for dev in w0 w1; do
		moved=$(($(rail $dev tx_put_bytes) + $(rail $dev get_bytes)))
		sum=$((sum + moved))
		between "$name: by $dev" $((2 * large / 3)) $moved \
			$((2 * large * 2 / 3))
		wire=$(($(sent $dev) - before[$dev]))
		between "$name: by the wire of $dev" $((large / 3)) $wire \
			$((large * 5 / 6))
	done
	between "$name: no byte goes twice" $((2 * large)) $sum \
		$((2 * large + 65536))
}

# An exchange beside others, in a folder of its own.
beside() # NAME VERSION MODE
{
	mkdir -p "$tap_tmp/$1"
	ln -sf ../exchange "$tap_tmp/$1/exchange"
	(tap_tmp=$tap_tmp/$1
	 WEFT_STATS=$tap_tmp/stats exchange "$2" "$2" peer "$3"
	 echo $? >"$tap_tmp/rc") &
	pids+=($!)
}

went() # NAME WHAT: how it did
{
	local tap_tmp=$tap_tmp/$1
	if test "$(cat "$tap_tmp/rc")" = 0; then
		tap_ok "$1: $2"
	else
		tap_not_ok "$1: $2" "$(words)"
	fi
}

messages() # NAME: that both sides of it sent
{
	local tap_tmp=$tap_tmp/$1
	rail w0 tx_messages
}

# UCX's keepalive, much more often than by default. Mostly waiting, so all at
# once; the link goes down when all are ready for it.
keepalive() # VERSION...
{
	local v newest=${*: -1} pids=()
	export UCX_NET_DEVICES=w0 WEFT_PEER_TIMEOUT=1s
	for v in "$@"; do
		UCX_KEEPALIVE_INTERVAL=10ms beside "$v, keepalive" "$v" alive
	done
	UCX_KEEPALIVE_INTERVAL=inf beside quiet "$newest" alive
	wait "${pids[@]}"
	for v in "$@"; do
		went "$v, keepalive" "a peer that is busy lives"
	done
	between "$newest, keepalive: UCX did ask" $(($(messages quiet) + 2)) \
		"$(messages "$newest, keepalive")" \
		$(($(messages quiet) + 1000))

	pids=()
	export UCX_KEEPALIVE_INTERVAL=10ms
	export EXCHANGE_VANISH="echo >>$tap_tmp/ready; i=0
		until test \$(wc -l <$tap_tmp/ready) = $#; do
			test \$((i += 1)) -lt 3000 || exit
			sleep 0.01
		done
		ip link set w0 down"
	for v in "$@"; do
		beside "$v, cut off" "$v" vanished
	done
	wait "${pids[@]}"
	for v in "$@"; do
		went "$v, cut off" "both sides get an error, once"
	done
}

chosen=("${versions[0]}")
test ${#versions[@]} = 1 || chosen+=("${versions[-1]}")
for v in "${chosen[@]}"; do
	rails "$v"
done
keepalive "${chosen[@]}"
tap_done
