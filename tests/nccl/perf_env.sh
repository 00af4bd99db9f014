#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# nccl_perf --env: names and values of any length, and what is none.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder
perf=${WEFT_BUILD:?}/tests/nccl/perf/nccl_perf
plugin=$WEFT_BUILD/nccl_net/.libs/libnccl-net-weft.so
export NCCL_SOCKET_IFNAME=lo

says() # NAME STATUS TEXT ARGUMENT...
{
	local name=$1 want=$2 text=$3 out rc=0
	shift 3
	out=$("$perf" --case sizes "$@" "$plugin" 2>&1) || rc=$?
	if test $rc = "$want" && grep -qF -- "$text" <<<"$out"; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "status $rc: $out" $'\n'"wanted: $want, $text"
	fi
}

long=$(printf 'x%.0s' {1..200})
says "a long name" 0 " ok " --env "0:$long$long=1"

# What arrives is seen by what a rank does with it.
mkdir "$tap_tmp/$long"
says "a long value" 0 " ok " --env "1:WEFT_STATS=$tap_tmp/$long/$long=1"
tap_equal "of which nothing is lost, for that rank alone" \
	"$(cd "$tap_tmp/$long" && echo *)" "$long=1"

for none in 0: 0 0:=1 0:NAME 9:NAME=1 :NAME=1; do
	# the option behind it is no part of it
	says "--env $none" 2 "--env wants RANK:NAME=VALUE, not '$none'" \
		--env "$none" --timeout=60
done
tap_done
