#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Ranks in two network namespaces, with the interfaces that containers bring:
# the right one is found without a word, and a dead link is noticed.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
perf=${WEFT_BUILD:?}/tests/nccl/perf/nccl_perf
plugin=$WEFT_BUILD/nccl_net/.libs/libnccl-net-weft.so

tap_skip_sanitized "the sanitizers watch one namespace, both in the long run"
type ip nsenter unshare >/dev/null 2>&1 || tap_skip_all "needs ip and unshare"
if test -z "$WEFT_TEST_INSIDE"; then
	if unshare -Urn true 2>/dev/null; then
		exec env WEFT_TEST_INSIDE=1 unshare -Urn bash "$0"
	fi
	test "$(id -u)" = 0 && unshare -n true 2>/dev/null ||
		tap_skip_all "may not make network namespaces"
fi

tap_folder
unshare -n sleep 1000 & a=$!
unshare -n sleep 1000 & b=$!
trap 'kill $a $b 2>/dev/null; rm -rf "$tap_tmp"' EXIT
own=$(readlink /proc/self/ns/net)
for pid in $a $b; do
	for _ in $(seq 500); do
		now=$(readlink /proc/$pid/ns/net)
		test -n "$now" && test "$now" != "$own" && break
		read -rt 0.01 <> <(:)
	done
done
in_a() { nsenter -n -t $a "$@"; }
in_b() { nsenter -n -t $b "$@"; }

ip link add wa netns $a type veth peer name wb netns $b ||
	tap_skip_all "cannot make a veth pair"
in_a ip addr add 10.77.0.1/24 dev wa && in_a ip link set wa up
in_b ip addr add 10.77.0.2/24 dev wb && in_b ip link set wb up
for side in in_a in_b; do
	$side ip link set lo up
	# Both have it, with one address: what docker does on every host.
	$side ip link add docker0 type veth peer name peer0
	$side ip addr add 172.17.0.1/16 dev docker0
	$side ip link set docker0 up
	$side ip link set peer0 up
done
# A link counts as up a moment after it was set so.
for side in "in_a wa" "in_b wb" "in_a docker0" "in_b docker0"; do
	for _ in $(seq 500); do
		${side% *} ip link show "${side#* }" | grep -q LOWER_UP.*UP &&
			break
		read -rt 0.01 <> <(:)
	done
done

run() # ARGUMENT...
{
	"$perf" --netns /proc/$a/ns/net,/proc/$b/ns/net "$@" "$plugin" 2>&1
}

if seen=$(WEFT_STATS=$tap_tmp/stats run --check); then
	tap_ok "all checks pass between two namespaces"
else
	tap_not_ok "all checks pass between two namespaces" "$seen"
fi
tap_nothing "nothing went by docker0 or lo" \
	"$(grep -e docker0 -e '"lo"' "$tap_tmp/stats" | grep -v self |
		grep -v '"wire_tx_bytes": *0[,}]' | head -3)"

# One rank has two interfaces more, which lead nowhere.
devices() # PID: as a rank there sees them
{
	"$perf" --case properties \
		--netns "/proc/$1/ns/net,/proc/$1/ns/net" "$plugin" 2>&1 |
		grep -o '[0-9]* device'
}
for name in aa zz; do
	in_a ip link add $name type veth peer name peer-$name
	in_a ip link set peer-$name up
	in_a ip link set $name up
done
in_a ip addr add 10.78.0.1/24 dev aa
in_a ip addr add 10.79.0.1/24 dev zz
for name in aa zz; do
	for _ in $(seq 500); do
		in_a ip link show $name | grep -q LOWER_UP.*UP && break
		read -rt 0.01 <> <(:)
	done
done
tap_equal "ranks with different interfaces list the same" \
	"$(devices $a), $(devices $b)" "1 device, 1 device"
rm -f "$tap_tmp/stats"
seen=$(WEFT_STATS=$tap_tmp/stats run --case sizes --case both-ways \
	--case many-comms --case ring | grep -v ' ok ')
tap_nothing "and connect, both ways" "$seen"
tap_nothing "by what they have in common" \
	"$(grep -e '"netdev":"aa"' -e '"netdev":"zz"' "$tap_tmp/stats" |
		grep -v '"wire_tx_bytes": *0[,}]' | head -3)"
tap_equal "all of it" "$(grep -c -e '"netdev":"w[ab]"' "$tap_tmp/stats" |
	awk '{ print ($1 >= 10) }')" 1
in_a ip link del aa
in_a ip link del zz

if seen=$(NCCL_SOCKET_IFNAME=w run --case sizes); then
	tap_ok "NCCL_SOCKET_IFNAME is a prefix"
else
	tap_not_ok "NCCL_SOCKET_IFNAME is a prefix" "$seen"
fi
seen=$(NCCL_SOCKET_IFNAME=nosuch run --case sizes)
if grep -q "NCCL_SOCKET_IFNAME" <<<"$seen"; then
	tap_ok "a name that no interface has is explained"
else
	tap_not_ok "a name that no interface has is explained" "$seen"
fi
seen=$(NCCL_SOCKET_IFNAME=docker0 run --case sizes --timeout 45)
if grep -q "FAILED.*172.17.0.1" <<<"$seen"; then
	tap_ok "ranks whose interfaces do not meet name them"
else
	tap_not_ok "ranks whose interfaces do not meet name them" "$seen"
fi

# below the ports that the kernel chooses, of which some wait for their end
seen=$(for _ in 1 2; do
	WEFT_PORT_RANGE=27600-27600 run --case reload
done | grep -v ' ok ')
tap_nothing "one port is enough for one communicator after the other" "$seen"

# No FIN, no RST, and no word from the kernel: frames go nowhere. patience.sh
# is about those that are silent and alive.
nowhere="lladdr 02:00:00:00:00:99 nud permanent"
for what in busy waiting; do
	if seen=$(WEFT_PEER_TIMEOUT=1s "$WEFT_BUILD"/tests/nccl/vanish $what \
		/proc/$a/ns/net /proc/$b/ns/net \
		"ip neigh replace 10.77.0.2 $nowhere dev wa" \
		"ip neigh replace 10.77.0.1 $nowhere dev wb" "$plugin" 2>&1); then
		tap_ok "$what, both sides report that the other is gone"
	else
		tap_not_ok "$what, both sides report that the other is gone" \
			"$seen"
	fi
	in_a ip neigh del 10.77.0.2 dev wa
	in_b ip neigh del 10.77.0.1 dev wb
done

# No FIN, no RST: the cable is gone.
run --speed --max-size 8m >"$tap_tmp/cut" 2>&1 & perf=$!
for _ in $(seq 500); do
	test "$(in_a cat /proc/net/dev | awk '/wa:/ { print ($2 > 5e6) }')" = 1 &&
		break
	read -rt 0.02 <> <(:)
done
in_a ip link set wa down
start=$SECONDS
wait $perf
code=$?
took=$((SECONDS - start))
if test $code = 1 && test $took -lt 40 && grep -q "rank" "$tap_tmp/cut"; then
	tap_ok "a link that goes dead is an error in bounded time"
else
	tap_not_ok "a link that goes dead is an error in bounded time" \
		"exit $code after $took s" "$(cat "$tap_tmp/cut")"
fi
tap_done
