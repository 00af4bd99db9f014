#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# examples/nccl_clique.py on GPUs: tests/e2e/test_nccl.py with the machine's own
# NCCL and CuPy instead of test doubles, values and counters checked, as a
# notebook on a cluster by scheduler file, with a LocalCluster and with a
# LocalCUDACluster. Two GPUs, gcc, and python3 with CuPy and NCCL are needed.
#
#   tests/gpu/clique.sh [DASK-ARCHIVE]
#
# DASK-ARCHIVE: dask.tar.xz of tests/gpu/carry.sh, where python3 has no Dask over
# ucxx of its own. The build is WEFT_BUILD, else one in build*/ of the tree.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd)

build=${WEFT_BUILD-}
for place in "$root" "$root"/build*/; do
	test -n "$build" || ! test -x "$place/tools/weft" || build=$place
done
test -x "$build/tools/weft" ||
	{ echo "$0: no build with tools/weft: set WEFT_BUILD" >&2; exit 2; }
build=$(cd "$build" && pwd)
site=$(mktemp -d) || exit 1
trap 'rm -rf "$site"' EXIT
test $# = 0 || python3 -m tarfile -e "$1" "$site" || exit 2
export PYTHONPATH=$root/tests/e2e:$site/site${PYTHONPATH:+:$PYTHONPATH}
export PYTHONDONTWRITEBYTECODE=1
python3 - <<-'END' || exit 1
	import cupy, dask, dask_cuda, distributed_ucxx, rmm, ucxx
	from cupy.cuda import nccl
	assert nccl.available, "CuPy finds no libnccl.so.2"
	print("# GPUs", cupy.cuda.runtime.getDeviceCount(), "CuPy",
	      cupy.__version__, "NCCL", nccl.get_version(), "Dask",
	      dask.__version__, "UCX %d.%d.%d" % ucxx.get_ucx_version())
END
export E2E_GPU=1 E2E_WEFT=$build/tools/weft
export E2E_PRELOAD=$build/ucx_tl/.libs/libweft_preload.so
export E2E_PLUGIN=$build/ucx_tl/.libs/libuct_weft.so
export E2E_NCCL_PLUGIN=$build/nccl_net/.libs/libnccl-net-weft.so
timeout -k 10 "${CLIQUE_SECONDS:-150}" \
	python3 -u "$root/tests/e2e/test_nccl.py" 2>&1
