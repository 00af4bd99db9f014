#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The conformance list of a build, as many devices at a time as there are
# processors: what ThreadSanitizer makes slow.
#
#   tests/conformance/rows.sh BUILD
here=$(cd "$(dirname "$0")" && pwd)
program=${1:?the build folder}/tests/conformance/conformance
make -s -C "$1" tests/conformance/conformance tests/lib/libfake_cuda.la >&2 ||
	exit 1
export WEFT_BUILD=$1
export WEFT_SANITIZED=thread TSAN_OPTIONS=suppressions=$here/../lib/tsan.supp
# over IPv6 it is the same threads and locks again; shm and memory have no thread of
# their own
printf '%s\n' tcp ib nvlink \
	${WEFT_TEST_LONG:+"tcp over IPv6" shm "shm, GPU memory" memory} |
	xargs -d '\n' -n 1 -P "$(nproc)" "$program" -d
