#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares weft's declarations of UCX's ABI with UCX's own, for each source tree
# (a release's tarball or a checkout) that WEFT_UCX_SOURCE names.
: "${WEFT_SRC:=$(cd "$(dirname "$0")/../.." && pwd)}"
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SRC/tests/lib/tap.sh"

test -n "${WEFT_UCX_SOURCE-}" ||
	tap_skip_all "WEFT_UCX_SOURCE names no source tree of UCX"
tap_folder

version_part() # TREE NAME
{
	sed -n "s/.*define(\[ucx_ver_$2\], *\([0-9]*\)).*/\1/p" \
		"$1/configure.ac" | head -1
}

for tree in $WEFT_UCX_SOURCE; do
	minor=$(version_part "$tree" minor)
	if test -z "$minor"; then
		tap_not_ok "$tree: is a source tree of UCX" \
			"no version in $tree/configure.ac"
		continue
	fi
	# The two headers that UCX's configure makes.
	mkdir -p "$tap_tmp/uct/api" "$tap_tmp/ucs/sys"
	printf '%s\n' '#define UCT_VERNO_MAJOR 1' "#define UCT_VERNO_MINOR $minor" \
		'#define UCT_VERNO_STRING "1"' \
		'#define UCT_MINOR_BIT (16UL)' '#define UCT_MAJOR_BIT (24UL)' \
		'#define UCT_VERNO(a, b) 0' '#define UCT_API UCT_VERNO(1, 0)' \
		>"$tap_tmp/uct/api/version.h"
	printf '%s\n' '#define UCS_MAX_LOG_LEVEL UCS_LOG_LEVEL_WARN' \
		'#define ENABLE_MT 1' '#define ENABLE_DEBUG_DATA 0' \
		'#define HAVE_DECL_F_SETOWN_EX 1' \
		'#define UCX_CONFIGURE_FLAGS ""' >"$tap_tmp/config.h"
	name="1.$minor in $(basename "$tree")"
	if ! out=$(${CC:-cc} -std=gnu11 -w -D_GNU_SOURCE -DHAVE_CONFIG_H \
			-DCPU_FLAGS= -DUCX_MINOR="$minor" \
			-I "$tap_tmp" -I "$tree/src" -I "$WEFT_SRC" \
			-Werror=incompatible-pointer-types \
			-o "$tap_tmp/abi" "$WEFT_SRC/tests/host/abi.c" \
			"$WEFT_SRC/ucx_tl/abi_table.c" 2>&1); then
		tap_not_ok "$name: compiles" "$(head -20 <<<"$out")"
	else
		tap_nothing "$name: the same layout" "$("$tap_tmp/abi")"
	fi
done
tap_done
