#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What runs in the emulated machine: the conformance list on two Soft-RoCE
# devices, NCCL's plugin on them, UCX and Dask, then every fault that these can
# show. No performance: emulated processors say nothing about it.
#
#   inside.sh PYTHON	one with ucxx and Dask
set -u
python=$1
# queue pairs are exchanged over lo, so that only the devices are cut off
export WEFT_TEST_IB=rxe0:1,rxe1:1 WEFT_NET_DEVICES=lo
# an emulated adapter may stall for longer than a real one
export WEFT_PEER_TIMEOUT=60s
status=0
list=$WEFT_BUILD/tests/conformance/conformance
# Where the machine below is busy an emulated adapter may stop for good amid a
# transfer, with nothing lost and no error: two in some ten runs of the list. So
# a row that fails is run again, by itself, and must pass then.
conformance()
{
	local seen row rc=0
	seen=$("$list" -d ib 2>&1) || rc=1
	while test $rc = 1 && read -r row; do
		"$list" -d ib -t "$row" >&2 || break
		echo "# at the second try: $row"
		seen=$(sed "s/^not \(ok [0-9]* - ib: $row\)\$/\1/" <<<"$seen")
	done < <(sed -n 's/^not ok [0-9]* - ib: //p' <<<"$seen")
	printf '%s\n' "$seen"
	! grep -q '^not ok\|^Bail' <<<"$seen" && grep -q '^1\.\.' <<<"$seen"
}
conformance || status=1
bash "$WEFT_SRC/tests/vm/nccl.sh" || status=1
# ucx.sh and dask.sh run all of this
env -u WEFT_TEST_IB -u WEFT_NET_DEVICES EXCHANGE_ALARM=300 WEFT_OFFLINE=1 \
	bash "$WEFT_SRC/tests/host/ib.sh" few || status=1
env -u WEFT_TEST_IB -u WEFT_NET_DEVICES PYTHONPATH="$WEFT_SRC/tests/e2e" \
	PYTHONDONTWRITEBYTECODE=1 E2E_WEFT="$WEFT_BUILD/tools/weft" \
	"$python" "$WEFT_SRC/tests/vm/programs.py" transpose ucxx_benchmark ||
	status=1

unset WEFT_PEER_TIMEOUT
fault() # [-i] END END COMMAND UNDO: rxe0's end and rxe1's, as faults.c has them
{
	local idle=()
	if test "$1" = -i; then
		idle=(-i)
		shift
	fi
	"$WEFT_BUILD/tests/vm/faults" "${idle[@]}" rxe0:1 rxe1:1 "$1" "$2" \
		"$3" || status=1
	eval "$4" || status=1
	# IPv6 and ARP settle, and the ports are active again
	for _ in $(seq 100); do
		test "$(cat /sys/class/infiniband/rxe*/ports/1/state |
			grep -c ACTIVE)" = 2 && break
		sleep 0.1
	done
}
# The first adapter that notices says why, and tells the other side: which of
# them it is may be left to chance, the cause never.
said="ECONNRESET:the peer said"
retry="ETIMEDOUT:transport retry counter exceeded"
retry+=";$said 'transport retry counter exceeded'"
down="ENETDOWN:is down;$said 'Network is down'"
own="EIO:local QP operation error"
other="$said 'local QP operation error'"

back="ip link set veth0 up; ip link set veth1 up"
# an emulated machine may stall for as long as all retries take, or as the
# watchdog waits
fault "$own;$retry" "$other;$retry" "ip link set veth0 down" "$back"
fault "$other;$retry" "$own;$retry" "ip link set veth1 down" "$back"
fault -i "$down;$own" "$down;$other" "ip link set veth0 down" "$back"
cut="tc qdisc add dev veth0 root netem loss 100%"
mend="tc qdisc del dev veth0 root"
silence="ETIMEDOUT:no answer for;$said 'Connection timed out'"
fault "$retry;$silence" "$retry;$silence" "$cut" "$mend"
fault -i "$retry;$silence" "$retry;$silence" "$cut" "$mend"
# an adapter that never gives up: the watchdog does
export WEFT_IB_RETRIES=7
fault "$silence" "$silence" "$cut" "$mend"
unset WEFT_IB_RETRIES
fault "$other;$retry" "$own;$retry" "ip addr del 10.77.0.2/24 dev veth1" \
	"ip addr add 10.77.0.2/24 dev veth1"
fault "EIO:RNR retry counter exceeded" "$said 'RNR retry counter exceeded'" \
	no-receive :
# a peer that lives, but whose queue pair does not, sees nothing itself; the
# watchdog, which would tell as much, is out of the way
export WEFT_PEER_TIMEOUT=60s
fault "ETIMEDOUT:transport retry counter exceeded" \
	"$said 'transport retry counter exceeded'" no-qp :
unset WEFT_PEER_TIMEOUT
fault -i "$retry;$silence" "$retry;$silence" no-qp :
# the adapter refuses a put, which ends the endpoint and the peer's
fault "ECONNRESET:remote access error;$said" \
	"ECONNRESET:the adapter refused;$said 'remote access error'" bad-rkey :
# what passes; a device that is deleted goes once no process has it open
fault none none "tc qdisc add dev veth0 root netem loss 1%" "$mend"
fault none none "$cut; sleep 0.3; $mend" :
add="rdma link add rxe1 type rxe netdev veth1"
fault none none "rdma link del rxe1 & sleep 0.3" \
	"for _ in \$(seq 50); do $add 2>&- && break; sleep 0.1; done"
exit $status
