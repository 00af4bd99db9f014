#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Finds what run.py compares with, in the cache, and runs it.  What `make
# bench` calls; the options are run.py's.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${WEFT_BUILD:?the build folder}
ucx=$("$here/../tests/tools/fetch-ucx.sh" 1.22.0 |
	sed -n 's/^1\.22\.0 //p' | tail -1)
test -x "$ucx/bin/ucx_perftest" ||
	{ echo "bench: no ucx_perftest in '$ucx'" >&2; exit 1; }
venv=$("$here/../tests/tools/venv.sh")
export PYTHONDONTWRITEBYTECODE=1
ulimit -n "$(ulimit -H -n)"
exec "$venv/bin/python" "$here/run.py" --build "$build" --ucx "$ucx" \
	--out "$build/bench/results/$(date +%F).json" "$@"
