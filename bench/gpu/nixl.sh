#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# NIXL on GPU memory between two pods: what tests/e2e/test_nixl.py has of it, values
# and peers that die, on real GPUs; then how fast it is over weft_nvl, beside
# cuda_ipc in shared namespaces, weft_tcp and UCX's tcp (bench/nixl.py), every byte
# checked. Prints a table; nixl.json and nixl.log lie in $OUT, or in ./out.
#
#   bench/gpu/nixl.sh ARCHIVE [ROUNDS [ARM...]]
#
# ARCHIVE is nixl.tar.xz of tests/gpu/carry.sh. Needs root and a python3 (3.12) with
# numpy; with one GPU both agents use it. At most 8 minutes; two rounds of all arms take 4.
# For a dry run without a GPU: E2E_FAKE_CUDA, the fake driver, and PYTHON.
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
test $# -ge 1 || { sed -n 's/^# \{0,1\}//;3,12p' "$0" >&2; exit 2; }
out=${OUT:-$PWD/out}
mkdir -p "$out" || exit 2
out=$(cd "$out" && pwd)
tmp=$(mktemp -d) && chmod 755 "$tmp" || exit 2
trap 'rm -rf "$tmp"' EXIT
python=${PYTHON:-python3}
python3 -m tarfile -e "$1" "$tmp/kit" || exit 2
export OUT=$out WEFT_CACHE=$tmp/kit E2E_WEFT=$tmp/kit/bin/weft
export E2E_POD=$tmp/kit/bin/pod E2E_PLUGIN=$tmp/kit/lib/ucx/libuct_weft.so
log=$out/nixl.log
: >"$log"
failed=0
timeout -k 5 120 "$python" "$root/tests/e2e/test_nixl.py" 'gpu_memory_*' 2>&1 |
	tee -a "$log" | tail -n 60
test "${PIPESTATUS[0]}" = 0 || failed=1
NIXL_SECONDS=200 timeout -k 5 330 "$python" "$root/bench/nixl.py" \
	"${@:2}" 2>&1 | tee -a "$log" | tail -n 80
test "${PIPESTATUS[0]}" = 0 || failed=1
test $failed = 0 || echo "some steps failed"
exit $failed
