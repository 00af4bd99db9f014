#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What must hold for NCCL over weft between the GPUs of this host, whatever the
# speed: a kernel sees every byte, CUDA graphs, splits, windows, training, ranks that
# vanish, compute or have no GPU in common. Each rank runs in a pod of its own, so
# root is needed, two GPUs or one, and python3 with cupy; for training torch, too. Nothing is
# built and nothing is fetched. bench/gpu/run.sh measures.
#
# With one GPU and NCCL 2.30 or newer (--nccl) the introduced cases run with all
# ranks on it (NCCL_MULTI_RANK_GPU_ENABLE=1).
# With one GPU start nvidia-cuda-mps-control -d: the carried cases run, as clients of
# MPS.
#
#   tests/gpu/run.sh [OPTION...] [CASE...]     all cases, or those that are named
#   tests/gpu/run.sh --help                    the options and the cases
here=$(cd "$(dirname "$0")" && pwd) || exit 1
root=$(cd "$here/../.." && pwd)
. "$here/plugin.sh"
exec python3 "$here/nccl/cases.py" --plugin "$plugin" --out "$out" "$@"
