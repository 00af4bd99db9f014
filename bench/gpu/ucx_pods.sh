#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# How fast UCX is with GPU memory between two pods on real GPUs: mapped by
# weft_nvl (cudaMalloc's, and cuMemCreate's), by fragments, which map none of the
# program's, and through host memory by weft_shm, where nodes are hidden, beside
# cuda_ipc in shared namespaces, UCX's pipeline through posix there, and UCX's tcp;
# arms interleaved. Prints a table; ucx_speed.json, ucx_speed.log and crash.txt lie
# in $OUT, or in ./out.
#
#   bench/gpu/ucx_pods.sh ARCHIVE
#
# Needs what tests/gpu/ucx_pods.sh needs, which has what must hold whatever the
# speed.
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
test $# = 1 || { sed -n 's/^# \{0,1\}//;3,13p' "$0" >&2; exit 2; }
. "$root/tests/gpu/ucx_kit.sh" ucx_speed "$1"
json=$tmp/figures
: >"$json"

speed() # ARM VERSION PLACE TLS MAX TOTAL [memory=KIND]
{
	local arm=$1 v=$2 place=$3 tls=$4
	two "speed: $arm, UCX $v" "$v" "$place" "$tls" 40 max="$5" total="$6" \
		"${@:7}" speed || return
	grep '^{' "$tmp/one" | sed "s/^{/{\"arm\":\"$arm\",\"ucx\":\"$v\",/" \
		>>"$json"
	case $tls in
	*weft*)	say "        weft_nvl moved $(moved nvlink) bytes," \
			"weft_shm $(moved shm)" ;;
	esac
}

fragments()
{
	UCX_RNDV_SCHEME=put_ppln UCX_RNDV_FRAG_MEM_TYPES=cuda \
		UCX_RNDV_FRAG_SIZE=cuda:8M UCX_RNDV_PIPELINE_ERROR_HANDLING=y \
		speed "$@"
}

real=
test -n "$driver" || real=1
posix=posix,cuda_copy,self
for round in 1 2; do
	speed mapped 1.22.0 pods $weft $largest $total
	test -z "$real" || speed cuda_ipc 1.22.0 here $ipc $largest $total
	UCX_RNDV_SCHEME=put_zcopy \
		speed "mapped put" 1.22.0 pods $weft $largest $total
	speed "mapped vmm" 1.22.0 pods $weft $largest $total memory=vmm
	fragments fragments 1.22.0 pods $weft $largest $total
	speed "weft_shm" 1.22.0 pods weft_shm,cuda_copy $some 1024
	test -z "$real" || speed posix 1.22.0 here $posix $some 1024
	test $round = 2 ||
		speed tcp 1.22.0 net tcp,cuda_copy,self $some 64
	speed mapped 1.21.0 pods $weft $largest $total
	test -z "$real" || test $round = 2 ||
		speed cuda_ipc 1.21.0 here $ipc $largest $total
done
if test -n "$real" && test -e /dev/nvidia0 && test -e /dev/nvidia1; then
	speed hidden 1.22.0 hidden $weft $some 1024
fi
python3 "$root/bench/gpu/ucx_table.py" "$json" "$out/ucx_speed.json" |
	tee -a "$log"
test $failed = 0 || echo "some steps failed"
exit $failed
