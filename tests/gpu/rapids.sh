#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What RAPIDS runs over UCX and NCCL, between two pods on real GPUs: rapidsmpf's
# shuffler on cuDF's tables and its own tests, cudf-polars by ranks and by Dask,
# frames of dask-cudf, raft-dask's Comms. Every row is checked, and weft's counters.
#
#   tests/gpu/rapids.sh [TEST...]     patterns of names, see rapids.py; all, else
#
# Needs root, for namespaces, a GPU (with one both pods use it), and a python3 with
# the packages: pip install rapidsmpf-cu13 cudf-polars-cu13 dask-cudf-cu13
# distributed-ucxx-cu13 raft-dask-cu13 pytest. What is missing is skipped.
# RAPIDSMPF_SOURCE: rapidsmpf's sources, for its own tests. The build is WEFT_BUILD,
# else the tree's.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd)
case ${1-} in
-*)	sed -n 's/^# \{0,1\}//;3,15p' "$0" >&2; exit 2 ;;
esac
build=$(cd "${WEFT_BUILD:-$root}" && pwd) || exit 2
test -x "$build/tools/weft" && test -x "$build/tests/gpu/pod" || {
	echo "$0: no build with tools/weft and tests/gpu/pod: set WEFT_BUILD" >&2
	exit 2
}
export PYTHONPATH=$root/tests/e2e${PYTHONPATH:+:$PYTHONPATH}
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
export E2E_GPU=1 E2E_WEFT=$build/tools/weft RAPIDS_POD=$build/tests/gpu/pod
export E2E_NCCL_PLUGIN=$build/nccl_net/.libs/libnccl-net-weft.so
exec python3 "$here/rapids.py" "$@" 2>&1
