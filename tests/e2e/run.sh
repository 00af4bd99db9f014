#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The end-to-end tests: unchanged Dask and ucxx programs over weft, judged by
# their results, by weft's counters and by the byte counters of the wire.
#
#   tests/e2e/run.sh [--long] [--list] [PATTERN...]
#
# PATTERN chooses tests by name ("seed*").  --long: also those of minutes.
# WEFT_BUILD names the build folder (default: the folder one stands in).
# E2E_KEEP=1 keeps the logs of every process and says where they are.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${WEFT_BUILD:-$PWD}
export E2E_WEFT=${E2E_WEFT:-$build/tools/weft}
export E2E_PRELOAD=${E2E_PRELOAD:-$build/ucx_tl/.libs/libweft_preload.so}
export E2E_PLUGIN=${E2E_PLUGIN:-$build/ucx_tl/.libs/libuct_weft.so}
export E2E_FAKE_CUDA=${E2E_FAKE_CUDA:-$build/tests/lib/.libs/libfake_cuda.so}
export E2E_NCCL_PLUGIN=${E2E_NCCL_PLUGIN:-$build/nccl_net/.libs/libnccl-net-weft.so}
export E2E_LONG=${E2E_LONG:-0}
patterns=()
list=0
while test $# -gt 0; do
	case $1 in
	--long) E2E_LONG=1 ;;
	--list) list=1 ;;
	-*) sed -n '3,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
	*) patterns+=("$1") ;;
	esac
	shift
done

if test $list = 1; then
	grep -h -A1 '^@test(' "$here"/test_*.py | sed -n 's/^def \(.*\)():/\1/p'
	exit 0
fi
if ! test -x "$E2E_WEFT"; then
	echo "1..0 # SKIP no $E2E_WEFT: run this in the build folder, or set WEFT_BUILD"
	exit 2
fi
venv=$("$here/../tools/venv.sh") || exit 2
export PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1

out=$(mktemp)
trap 'rm -f "$out"' EXIT
# More at once than there are processors: they wait, too. Those of many tests first.
grep -c '^@test(' "$here"/test_*.py | sort -t: -k2nr | cut -d: -f1 |
	xargs -P "$(($(nproc) + 1))" -I FILE bash -c '"$@"
		test $? -le 1 || echo "not ok - $(basename "$2") broke off"' \
	_ "$venv/bin/python" FILE ${patterns[@]+"${patterns[@]}"} | tee "$out"
failed=$(grep -c '^not ok' "$out")
skipped=$(grep -c '^ok .*# SKIP' "$out")
passed=$(($(grep -c '^ok' "$out") - skipped))
echo "$passed passed, $failed failed, $skipped skipped"
test "$failed" = 0
