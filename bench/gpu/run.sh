#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures NCCL over weft between the GPUs of this host. Every value is checked
# meanwhile. Prints tables, and writes results.json or pods.json to $OUT, or to ./out.
#
# Needs two GPUs and python3 with torch, with cupy, or with both; --pods needs cupy.
# Nothing is built and nothing is fetched. tests/gpu/run.sh has what must hold whatever
# the speed.
#
#   bench/gpu/run.sh                  over weft's TCP against NCCL's own sockets, with
#                                     P2P and shared memory off: as between hosts
#   bench/gpu/run.sh --quick          all_reduce alone, one round
#   bench/gpu/run.sh --pods [N]       a pod for each rank, or for N ranks (root):
#                                     introduced by each way there is, by weft's
#                                     TCP, by sockets, and native
#   bench/gpu/run.sh [--pods] --help  the options
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd)
. "$root/tests/gpu/plugin.sh"
program=arms.py
if test "${1-}" = --pods; then
	program=pods.py
	shift
fi
exec python3 "$here/$program" --plugin "$plugin" --out "$out" "$@"
