#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# How fast UCX is over weft_nvl between two pods on real GPUs: by rings
# (WEFT_NVL_DIRECT=off) and with memory that peers map (cudaMalloc's, and
# cuMemCreate's), beside cuda_ipc in shared namespaces and UCX's tcp, arms
# interleaved. Prints a table;
# ucx_speed.json, ucx_speed.log and crash.txt lie in $OUT, or in ./out.
#
#   bench/gpu/ucx_pods.sh ARCHIVE
#
# Needs what tests/gpu/ucx_pods.sh needs, which has what must hold whatever the
# speed.
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
test $# = 1 || { sed -n 's/^# \{0,1\}//;3,10p' "$0" >&2; exit 2; }
. "$root/tests/gpu/ucx_kit.sh" ucx_speed "$1"
json=$out/ucx_speed.json
: >"$json"

speed() # ARM VERSION PLACE TLS MAX TOTAL [memory=KIND]
{
	local arm=$1 v=$2 place=$3 tls=$4
	two "speed: $arm, UCX $v" "$v" "$place" "$tls" 40 max="$5" total="$6" \
		"${@:7}" speed || return
	grep '^{' "$tmp/one" | sed "s/^{/{\"arm\":\"$arm\",\"ucx\":\"$v\",/" \
		>>"$json"
	case $tls in
	*weft*)	say "        weft_nvl carried $(carried) bytes," \
			"$(mapped) without a ring" ;;
	esac
}

for round in 1 2; do
	WEFT_NVL_DIRECT=off speed ring 1.22.0 pods $weft $largest $total
	speed mapped 1.22.0 pods $weft $largest $total
	speed "mapped vmm" 1.22.0 pods $weft $largest $total memory=vmm
	test -n "$driver" ||
		speed cuda_ipc 1.22.0 here $ipc $largest $total
	test $round = 2 ||
		speed tcp 1.22.0 net tcp,cuda_copy,self $some 64
	speed mapped 1.21.0 pods $weft $largest $total
	test -n "$driver" || test $round = 2 ||
		speed cuda_ipc 1.21.0 here $ipc $largest $total
done
if test -z "$driver" && test -e /dev/nvidia0 && test -e /dev/nvidia1; then
	speed hidden 1.22.0 hidden $weft $some 1024
fi
python3 "$root/bench/gpu/ucx_table.py" "$json" | tee -a "$log"
test $failed = 0 || echo "some steps failed"
exit $failed
