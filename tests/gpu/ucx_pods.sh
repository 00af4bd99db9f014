#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# UCX over weft_nvl between two pods on real GPUs: whether the driver, UCX and weft
# each work by themselves, then every byte at every size. ucx_pods.log and crash.txt
# lie in $OUT, or in ./out. bench/gpu/ucx_pods.sh measures.
#
#   tests/gpu/ucx_pods.sh ARCHIVE
#
# ARCHIVE is ucx.tar.xz of tests/gpu/carry.sh. Needs root, for namespaces, and
# a GPU; with one GPU both pods use it. UCX_PODS_DRIVER names a folder with a
# fake libcuda.so.1 for a dry run.
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
test $# = 1 || { sed -n 's/^# \{0,1\}//;3,11p' "$0" >&2; exit 2; }
. "$root/tests/gpu/ucx_kit.sh" ucx_pods "$1"

say "Each by itself"
alone "the driver, no UCX loaded" none "$tmp/kit/bin/probe"
for v in 1.22.0 1.21.0; do
	alone "UCX $v loads" $v "$gpu" driver
	UCX_TLS=cuda_copy,posix,self alone "UCX $v is set up" $v "$gpu" setup
	UCX_TLS=$weft alone "UCX $v is set up with weft" $v \
		env LD_PRELOAD="$tmp/kit/weft/libweft_preload.so" "$gpu" setup
done
test -n "$driver" ||
	two "stock cuda_ipc, values" 1.22.0 here $ipc 30 max=1 values
say "Every byte"
for v in 1.22.0 1.21.0; do
	two "weft, pods, UCX $v" $v pods $weft 40 peer max=$some values
	say "        weft_nvl moved $(moved nvlink) bytes, weft_shm $(moved shm)"
	two "weft, pods on one network, socket address, UCX $v" $v net \
		$weft,weft_tcp 30 sock peer block max=1 values
done
for scheme in put get; do
	export UCX_RNDV_SCHEME=${scheme}_zcopy
	two "memory of cuMemCreate(), scheme $scheme" 1.22.0 pods $weft 30 peer \
		memory=vmm max=$some large && all_by nvlink
	PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
		two "several allocations, scheme $scheme" 1.22.0 pods $weft 30 \
		peer memory=parts max=$some large && all_by nvlink
done
unset UCX_RNDV_SCHEME
two "cudaMalloc's memory, pods of equal pids" 1.22.0 pods $weft 30 \
	peer max=$some large && equal_pids && all_by nvlink
two "the same, UCX 1.21.0" 1.21.0 pods $weft 30 peer max=$some large &&
	equal_pids && all_by nvlink
two "the same, messages by weft_tcp" 1.22.0 net weft_nvl,weft_tcp,cuda_copy 30 \
	peer max=$some large && all_by nvlink
two "cudaMalloc's memory, freed and allocated again" 1.22.0 pods $weft 40 peer \
	max=$some again && all_by nvlink && grep 'each way' "$tmp/one" |
	tee -a "$log"
two "without weft_nvl: by weft_shm" 1.22.0 pods weft_shm,cuda_copy 40 peer \
	max=$some values && all_by shm
export UCX_RNDV_SCHEME=put_ppln UCX_RNDV_FRAG_MEM_TYPES=cuda \
	UCX_RNDV_FRAG_SIZE=cuda:8M UCX_RNDV_PIPELINE_ERROR_HANDLING=y
two "by fragments" 1.22.0 pods $weft 40 peer max=$some again && all_by nvlink
two "by fragments, a killed peer" 1.22.0 pods $weft 40 peer max=$some killed
unset UCX_RNDV_SCHEME UCX_RNDV_FRAG_MEM_TYPES UCX_RNDV_FRAG_SIZE \
	UCX_RNDV_PIPELINE_ERROR_HANDLING
two "4,000 messages" 1.22.0 pods $weft 40 max=$some many
two "a killed peer that has memory mapped" 1.22.0 pods $weft 40 peer max=$some \
	killed
two "lanes" 1.22.0 pods $weft 20 lanes &&
	grep lane "$tmp/one" | tee -a "$log"
if test -z "$driver" && test -e /dev/nvidia0 && test -e /dev/nvidia1; then
	two "weft, pods without the other's device node, values" 1.22.0 hidden \
		$weft 40 peer max=$some values && all_by shm &&
		grep -h 'weft:' "$tmp/one" "$tmp/two" | tee -a "$log"
	two "the same, a killed peer" 1.22.0 hidden $weft 40 peer max=$some killed
fi
test $failed = 0 && echo "every value right" || echo "some steps failed"
exit $failed
