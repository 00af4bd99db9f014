#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Which of a host's or a container's interfaces NCCL's traffic takes.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
weft=${WEFT_BUILD:?}/tools/weft
unset WEFT_NET_DEVICES UCX_NET_DEVICES UCXPY_IFNAME NCCL_SOCKET_IFNAME WEFT_FAMILY
for name in "${!DASK_@}"; do unset "$name"; done

type ip unshare >/dev/null 2>&1 || tap_skip_all "needs ip and unshare"
if test -z "$WEFT_TEST_INSIDE"; then
	for how in -Urn -n; do
		unshare $how true 2>/dev/null &&
			exec env WEFT_TEST_INSIDE=1 unshare $how bash "$0"
	done
	tap_skip_all "may not make network namespaces"
fi

pair() # NAME [ADDRESS]: one end of a veth pair; the other has no address
{
	ip link add "$1" type veth peer name "peer-$1" &&
		ip link set "peer-$1" addrgenmode none up &&
		ip link set "$1" addrgenmode none up &&
		{ test -z "${2-}" || ip addr add "$2" dev "$1"; }
}

adapter() # NAME ADDRESS: no veth, as a host's own
{
	ip link add link wire name "$1" type macvlan &&
		ip addr add "$2" dev "$1" && ip link set "$1" up
}

bridge() # NAME ADDRESS: with a container's veth in it, since it is up for that
{
	ip link add "$1" type bridge && pair port &&
		ip link set peer-port master "$1" &&
		ip link set "$1" addrgenmode none up &&
		ip addr add "$2" dev "$1"
}

ip link set lo up
pair wire &&
	adapter net0 10.80.0.1/24 && adapter link0 169.254.7.1/16 &&
	bridge docker0 172.17.0.1/16 && pair eth0 10.81.0.1/24 ||
	tap_skip_all "cannot make veth, macvlan and bridge interfaces"
# A link counts as up a moment after it was set so.
for name in net0 link0 docker0 eth0; do
	for _ in $(seq 500); do
		ip link show "$name" | grep -q LOWER_UP.*UP && break
		read -rt 0.01 <> <(:)
	done
done

takes() # [VARIABLE=VALUE]: names
{
	env "$@" "$weft" info nccl 2>&1 |
		awk '/^Interfaces/ { on = 1; next } !NF { on = 0 } on { print $1 }' |
		sort | xargs
}

tap_equal "only the host's own interface, not docker0, veth or link-local" \
	"$(takes)" net0
tap_equal "docker0 if it is named" "$(takes NCCL_SOCKET_IFNAME=docker0)" \
	docker0
tap_equal "a link-local address if it is named" \
	"$(takes WEFT_NET_DEVICES=link0)" link0
tap_equal "a named veth and the host's own" \
	"$(takes UCX_NET_DEVICES=eth0,net0)" "eth0 net0"
ip route add default via 10.81.0.2 dev eth0
tap_equal "the veth that leads out of a container" "$(takes)" "eth0 net0"
ip link del net0
tap_equal "not docker0 beside that veth" "$(takes)" eth0
ip route del default
tap_equal "docker0 and veth if there is nothing else" "$(takes)" \
	"docker0 eth0"
ip link del docker0
ip link del eth0
tap_equal "a link-local address if there is nothing else" "$(takes)" link0
ip link del link0
tap_equal "loopback if there is nothing else" "$(takes)" lo
tap_done
