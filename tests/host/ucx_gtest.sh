#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# UCX's own tests of transports, for weft_tcp beside UCX's tcp: what passes for
# that one passes for ours. A chosen few, where tests/tools/ucx-gtest.sh has
# built them before; docs/dev/ucx-gtest.md has the rest.
. "$(dirname "$0")/common.sh"

only=${WEFT_TEST_GTEST_ONLY:-'^(test_uct_(ep|event|progress|iface)|test_md|test_mem|uct_fence_test|uct_cancel_test|test_many2one_am)'}

gtest=$(bash "$WEFT_SRC/tests/tools/ucx-gtest.sh" --list)
test -n "$gtest" ||
	tap_skip_all "UCX's gtest is not built (tests/tools/ucx-gtest.sh)"
if test "${1-}" != inside; then
	unshare -n -m true 2>/dev/null ||
		tap_skip_all "no network namespace to be had here"
	exec unshare -n -m bash "$0" inside
fi

# UCX's tcp finds interfaces in /sys, and has IPv4 alone
mount -t sysfs sysfs /sys &&
	ip link set lo up &&
	ip link add w0 type veth peer name w1 &&
	ip link set w1 addrgenmode none && ip link set w1 up &&
	ip addr add 10.7.0.1/24 dev w0 && ip link set w0 up ||
	tap_skip_all "no veth interface to be had here"
WEFT_TEST_GTEST_PRELOAD=$preload exec python3 \
	"$WEFT_SRC/tests/tools/ucx_gtest.py" "$gtest" weft_tcp tcp \
	--only "$only" --seconds "${WEFT_TEST_GTEST_SECONDS:-60}"
