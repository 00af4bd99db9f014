#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weft built where its source lies, as README says: every other build of the
# suite has a folder of its own. In a copy, so that the tree stays clean.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_folder
tree=$tap_tmp/tree

run() # NAME COMMAND...: its last lines when it fails
{
	local name=$1
	shift
	if (cd "$tree" && "$@") >"$tap_tmp/log" 2>&1 </dev/null; then
		tap_ok "$name"
	else
		tap_not_ok "$name" "$(tail -20 "$tap_tmp/log")"
		tap_done
	fi
}

mkdir "$tree"
(cd "$WEFT_SRC" && project_files '*' | tar -c -T - | tar -x -C "$tree") || exit 99
unset WEFT_SRC WEFT_BUILD
run "autogen.sh" ./autogen.sh
run "configure" ./configure -q --prefix="$tap_tmp/prefix"
run "make" make -j"$(nproc)"
run "make check, of the files that it made" make check TESTS="
	tests/check/source.sh tests/check/symbols.sh tests/check/preload.sh
	tests/cli/info.sh tests/cli/run.sh tests/unit/ucx_tl/ep_test"
run "make install" make install
tap_equal "what is installed runs" \
	"$(UCX_TLS=weft_tcp "$tap_tmp/prefix/bin/weft" info |
		grep -c "$tap_tmp/prefix/lib/libweft_preload.so")" 1
run "make clean" make clean
tap_nothing "make clean leaves no object behind" \
	"$(find "$tree" -name '*.o' -o -name '*.lo' -o -name '*.la')"
tap_done
