#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds UCX's own gtest with suites for weft's transports, and prints its path.
# Nothing is done when it is there.
#
#   tests/tools/ucx-gtest.sh [--list]
#
# The source is the tree that WEFT_UCX_SOURCE names, or the newest release that
# weft knows of Debian's suites. --list builds nothing: it prints what exists.
# The suites of UCS and UCM, which no transport is in, are left out.
set -eu
cache=${WEFT_CACHE:-$HOME/.cache/weft}
here=$(dirname "$0")
built=$cache/ucx-gtest

if test "${1-}" = --list; then
	find "$built" -path '*/test/gtest/gtest' 2>/dev/null | sort -V | tail -1
	exit
fi

# shellcheck source=tests/lib/ucx_source.sh
. "$here/../lib/ucx_source.sh"
mkdir -p "$cache"
exec 9>"$cache/build-ucx.lock"
flock 9
ucx_source newest
work=$built/$version
# the folder stays the same, so that ccache knows what it has compiled before
sum=$(cat "$0" "$here/ucx-gtest-names.sh" <(echo "$source") | sha256sum)
if test "$(cat "$work/weft.sum" 2>/dev/null)" != "$sum"; then
	rm -rf "$work"
	mkdir -p "$work"
	cp -r "$source/." "$work"
	bash "$here/ucx-gtest-names.sh" "$work"
	(
		cd "$work"
		test -x configure || ./autogen.sh
		./configure -q --enable-gtest --enable-mt --without-cuda \
			--without-verbs --without-rdmacm --without-java \
			--without-go --without-rocm --without-fuse3 \
			--without-knem --without-xpmem --disable-doxygen-doc \
			CFLAGS="-g0 -O1 -Wno-error" \
			CXXFLAGS="-g0 -O0 -Wno-error"
		for dir in src/{ucm,ucs,uct,ucp} src/tools/{vfs,perf} \
				test/gtest/{ucs/test_module,ucm/test_dlopen} \
				test/gtest/common/googletest; do
			test ! -e "$dir/Makefile" || make -s -j"$(nproc)" -C "$dir"
		done
		cd test/gtest
		objects=$(sed -n '/^am_gtest_OBJECTS = /,/[^\\]$/p' Makefile |
			tr -s '= \t\\' '\n' |
			grep -E '^(common|uct|ucp)/.*OBJEXT')
		make -s -j"$(nproc)" gtest gtest_OBJECTS="$(echo $objects)"
		find .. -name '*.o' -delete
	) >&2
	echo "$sum" >"$work/weft.sum"
fi
echo "$work/test/gtest/gtest"
