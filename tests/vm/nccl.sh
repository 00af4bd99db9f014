#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# NCCL's plugin on two Soft-RoCE devices, in the emulated machine: what it does
# over TCP it does over them, in every version of NCCL's interface, and it is
# they that carry it; where a rank has none, or may not use them, TCP does.
#
#   nccl.sh [all]	every check in every version, and no more: versions.sh.
#			Else the versions share the checks, without three long ones
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
	: >"$tap_tmp/stats"
	# shellcheck disable=SC2046 # words
	WEFT_STATS=$tap_tmp/stats "$WEFT_BUILD"/tests/nccl/perf/nccl_perf --check \
		--timeout 120 "${options[@]}" \
		$(printf -- '--case %s ' "$@") "$plugin" 2>&1 |
		grep -vE '^v[0-9]* +([a-z-]+ +ok|grouped +skipped) '
}

# Bash alone: to start a program takes an emulated processor long.
sum() # DEVICE COUNTER, of all ranks
{
	local line n=0
	while read -r line; do
		[[ $line == *"\"weft\":\"$1\""* &&
			$line =~ \"$2\":([0-9]+) ]] &&
			n=$((n + BASH_REMATCH[1]))
	done <"$tap_tmp/stats"
	echo $n
}

between() # NAME LEAST SEEN MOST
{
	if test "$3" -ge "$2" && test "$3" -le "$4"; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "seen $3, wanted $2 to $4"
	fi
}

# What the sizes of a check add up to, of those that are not messages.
declare -A puts=([properties]=0 [sizes]=150970368 [unaligned]=7339997
	[in-flight]=22050529 [both-ways]=25596032 [late-receive]=3175728
	[late-send]=3175728 [early-completion]=65536 [grouped]=0
	[register-beside]=9819544 [listen-reuse]=200000 [many-comms]=8960000
	[two-contexts]=600000 [threads]=12000000 [self]=1048576 [ring]=4800000
	[reload]=800000 [too-large]=0 [peer-busy]=8588608
	[peer-stopped]=16977216)
# These go on for as long as other things take. In rounds of 640,000 bytes, and
# half a round:
rounds=connect-beside
# Comms closed with requests out, and a rank that is killed, which counts no
# more: of three times 8 MiB each way and of 4 MiB what had left by then, and
# 100,000 bytes each way after the one and before the other.
ends=(close-in-flight peer-killed)
ends_least=300000 ends_most=$((3 * 2 * (8 << 20) + (4 << 20) + 300000))

adapters_only() # NAME
{
	tap_equal "$1: TCP carries no block" "$(sum tcp tx_put_bytes)" 0
	between "$1: TCP is for queue pairs alone" 1 \
		"$(sum tcp tx_message_bytes)" 32768
}

by_adapters() # NAME OPTION... -- CASE...
{
	local name=$1 bytes=0 check
	shift
	tap_nothing "$name" "$(perf "$@")"
	while test "$1" != --; do
		shift
	done
	shift
	for check in "$@"; do
		bytes=$((bytes + puts[$check]))
	done
	tap_equal "$name: the adapters carry it, once" \
		"$(sum ib tx_put_bytes)" $bytes
	adapters_only "$name"
}

beside_others() # VERSION
{
	local name="version $1, $rounds" bytes
	tap_nothing "$name" "$(perf --api "$1" -- $rounds)"
	bytes=$(sum ib tx_put_bytes)
	tap_equal "$name: the adapters carry whole rounds, once" \
		$((bytes % 640000)) 320000
	adapters_only "$name"
}

end_midway() # VERSION
{
	local name="version $1, comms and a rank that end in the middle"
	tap_nothing "$name" "$(perf --api "$1" -- "${ends[@]}")"
	between "$name: the adapters carry what had left" $ends_least \
		"$(sum ib tx_put_bytes)" $ends_most
	adapters_only "$name"
}

known=$(printf '%s\n' "${!puts[@]}" $rounds "${ends[@]}" | sort)
tap_equal "every check is here" \
	"$("$WEFT_BUILD"/tests/nccl/perf/nccl_perf --list | awk '{ print $1 }' | sort)" \
	"$known"

if test "${1-}" = all; then
	for api in 6 7 8 9 10 11 12; do
		by_adapters "version $api" --api $api -- "${!puts[@]}"
		beside_others $api
		end_midway $api
	done
	tap_done
fi

seen=$("$WEFT_BUILD"/tests/nccl/perf/nccl_perf --check --case properties "$plugin" 2>&1)
if grep -q " 2 devices, 'rxe0:1', [1-9]" <<<"$seen"; then
	tap_ok "both ports are devices"
else
	tap_not_ok "both ports are devices" "$seen"
fi

by_adapters "version 6" --api 6 -- properties unaligned self
by_adapters "version 7" --api 7 -- in-flight too-large
by_adapters "version 8" --api 8 -- both-ways many-comms
end_midway 8
by_adapters "version 9" --api 9 -- late-receive register-beside
by_adapters "version 10" --api 10 -- early-completion two-contexts threads
beside_others 10
by_adapters "version 11" --api 11 -- late-send ring grouped
by_adapters "version 12" --api 12 -- listen-reuse reload

falls() # NAME VARIABLE
{
	tap_nothing "$1" "$(perf --env "$2" -- both-ways)"
	tap_equal "$1: TCP carries it, once" "$(sum tcp tx_put_bytes)" \
		"${puts[both-ways]}"
	tap_equal "$1: the adapters carry nothing" "$(sum ib wire_tx_bytes)" 0
}
falls "a rank with NCCL_IB_DISABLE=1" 1:NCCL_IB_DISABLE=1
falls "a rank without an adapter" 0:NCCL_IB_HCA=mlx5
tap_done
