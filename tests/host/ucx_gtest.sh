#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# UCX's own tests of transports: what passes for UCX's tcp passes for ours, but
# for what docs/dev/ucx-gtest.md lists. A chosen few over weft_tcp, where
# tests/tools/ucx-gtest.sh has built them before; "all", as ./quickstart test
# --long does: builds them, and runs all over weft_tcp, over weft_nvl on the fake
# driver and over weft_ib on the fake adapter.
. "$(dirname "$0")/common.sh"
. "$WEFT_SRC/tests/lib/verbs.sh"

what=${1:-few}
few='^(test_uct_(ep|event|progress|iface)|test_md|test_mem|uct_fence_test|uct_cancel_test|test_many2one_am|test_ucp_tag_(cancel|probe\.send_rndv))'
tools=$WEFT_SRC/tests/tools

if test "${2-}" != inside; then
	unshare -n -m true 2>/dev/null ||
		tap_skip_all "no network namespace to be had here"
	if test "$what" = all; then
		gtest=$(bash "$tools/ucx-gtest.sh") ||
			{ tap_not_ok "UCX's gtest is built"; tap_done; }
	else
		gtest=$(bash "$tools/ucx-gtest.sh" --list)
		test -n "$gtest" ||
			tap_skip_all "UCX's gtest is not built (tests/tools/ucx-gtest.sh)"
	fi
	WEFT_TEST_GTEST=$gtest exec unshare -n -m bash "$0" "$what" inside
fi
gtest=$WEFT_TEST_GTEST

# UCX's tcp finds interfaces in /sys, and has IPv4 alone
mount -t sysfs sysfs /sys &&
	ip link set lo up &&
	ip link add w0 type veth peer name w1 &&
	ip link set w1 addrgenmode none && ip link set w1 up &&
	ip addr add 10.7.0.1/24 dev w0 && ip link set w0 up ||
	tap_skip_all "no veth interface to be had here"
tap_folder
status=0

like_tcp() # TRANSPORT [LIBRARY]: with that one loaded, too
{
	local only='' seconds=300 # a busy machine is ten times slower
	test "$what" = all || only=$few seconds=60
	WEFT_TEST_GTEST_PRELOAD=${2:+$2 }$preload \
		python3 "$tools/ucx_gtest.py" "$gtest" "$1" tcp \
		--known "$WEFT_SRC/docs/dev/ucx-gtest.md" \
		--results "$tap_tmp/tcp.json" \
		--only "${WEFT_TEST_GTEST_ONLY-$only}" \
		--seconds "${WEFT_TEST_GTEST_SECONDS:-$seconds}" \
		--jobs "${WEFT_TEST_GTEST_JOBS:-1}" || status=1
}

# CUDA's modules are a release's; the libraries below them are the build's.
on_the_fake_driver()
{
	local src=${gtest%/test/gtest/gtest}/src version module driver lib
	version=$(basename "${src%/src}")
	module=${prefix_of[$version]-}/lib/ucx/libuct_cuda.so.0
	if ! test -e "$module"; then
		tap_skip weft_nvl "no release of UCX $version with CUDA's modules"
		return
	fi
	driver=$tap_tmp/driver
	mkdir "$driver" "$tap_tmp/run"
	for lib in libcuda.so.1 libnvidia-ml.so.1; do
		ln -s "$WEFT_BUILD/tests/lib/.libs/libfake_cuda.so" "$driver/$lib"
	done
	(
		for lib in ucs uct ucm ucp; do
			LD_LIBRARY_PATH+=${LD_LIBRARY_PATH:+:}$src/$lib/.libs
		done
		export LD_LIBRARY_PATH+=:$driver UCX_MEMTYPE_CACHE=n
		export WEFT_LIBCUDA=$driver/libcuda.so.1 WEFT_RUN_DIR=$tap_tmp/run
		like_tcp weft_nvl "$module"
		exit $status
	) || status=1
}

on_the_fake_adapter()
{
	if ! grep -q 'HAVE_VERBS_H 1' "$WEFT_BUILD/config.h"; then
		tap_skip weft_ib "built without rdma-core's headers"
	elif ! verbs_setup "$tap_tmp"; then
		tap_skip weft_ib "nothing can be put over /sys/class here"
	else
		export LD_LIBRARY_PATH=$verbs
		like_tcp weft_ib
	fi
}

like_tcp weft_tcp
if test "$what" = all; then
	WEFT_OFFLINE=yes find_builds
	on_the_fake_driver
	on_the_fake_adapter
fi
exit $status
