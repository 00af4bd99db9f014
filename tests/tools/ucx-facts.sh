#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What weft has to know of a release of UCX, from its source tree: compiles
# tests/host/programs/abi.c against it.  docs/dev/new-ucx.md says what to do with it.
#
#   tests/tools/ucx-facts.sh TREE [OLDER-TREE]
#   tests/tools/ucx-facts.sh --compare TREE
#   tests/tools/ucx-facts.sh --binary LIBUCT
#
# The first prints a row for ucx_tl/abi_table.c, what differs from weft's
# declarations, the slots of the two tables of methods that have grown, and the
# functions that OLDER-TREE does not declare: one of them becomes the mark by
# which the release is known.  --compare prints what differs from the row that
# there is, and ends well if nothing does.  --binary, for a build whose sources
# are not to be had: the slot that each function calls (x86-64).
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)

usage()
{
	sed -n 's/^#   \(tests\)/usage: \1/p' "$0" >&2
	exit 2
}

version_part() # TREE NAME
{
	sed -n "s/.*define(\[ucx_ver_$2\], *\([0-9]*\)).*/\1/p" \
		"$1/configure.ac" | head -1
}

# Builds $tmp/abi; the two headers are those that UCX's configure makes.
build() # TREE MINOR
{
	mkdir -p "$tmp/uct/api" "$tmp/ucs/sys"
	printf '%s\n' '#define UCT_VERNO_MAJOR 1' "#define UCT_VERNO_MINOR $2" \
		'#define UCT_VERNO_STRING "1"' \
		'#define UCT_MINOR_BIT (16UL)' '#define UCT_MAJOR_BIT (24UL)' \
		'#define UCT_VERNO(a, b) 0' '#define UCT_API UCT_VERNO(1, 0)' \
		>"$tmp/uct/api/version.h"
	printf '%s\n' '#define UCS_MAX_LOG_LEVEL UCS_LOG_LEVEL_WARN' \
		'#define ENABLE_MT 1' '#define ENABLE_DEBUG_DATA 0' \
		'#define HAVE_DECL_F_SETOWN_EX 1' \
		'#define UCX_CONFIGURE_FLAGS ""' >"$tmp/config.h"
	${CC:-cc} -std=gnu11 -w -D_GNU_SOURCE -DHAVE_CONFIG_H \
		-DCPU_FLAGS= -DUCX_MINOR="$2" \
		-I "$tmp" -I "$1/src" -I "$here" \
		-o "$tmp/abi" "$here/tests/host/programs/abi.c" \
		"$here/ucx_tl/abi_table.c"
}

slots() # HEADER STRUCT: its members, numbered from 0
{
	sed -n "/^\(typedef \)\{0,1\}struct $2 {/,/^}/p" "$1" |
		sed -n 's/^ *[a-z0-9_]*_t  *\([a-z0-9_]*\);.*/\1/p' |
		awk '{ printf "  %2d %s\n", NR - 1, $1 }'
}

declared() # TREE
{
	grep -rhoE '\buct_[a-z0-9_]+ ?\(' "$1"/src/uct/api "$1"/src/uct/base \
		--include='*.h' | tr -d ' (' | sort -u
}

binary() # LIBUCT
{
	local name address
	nm -D --defined-only "$1" |
		sed -n 's/^\([0-9a-f]*\) T \(uct_\(ep\|iface\|md\)_.*\)/\1 \2/p' |
		while read -r address name; do
			objdump -d --no-show-raw-insn --start-address="0x$address" \
				--stop-address=$((0x$address + 24)) "$1" |
				sed -n 's/.*jmp  *\*0x\([0-9a-f]*\)(%r[a-z]*)$/\1/p' |
				head -1 | while read -r offset; do
					echo "  $((0x$offset / 8)) $name"
				done
		done | sort -n
}

mode=all
case ${1-} in
--compare | --binary)	mode=${1#--}; shift ;;
-*)	usage ;;
esac
case $# in 1 | 2) ;; *) usage ;; esac
if test "$mode" = binary; then
	found=$(binary "$1")
	if test -z "$found"; then
		echo "no function of libuct that calls a slot in $1" >&2
		exit 1
	fi
	printf '%s\n' "$found"
	exit
fi
for tree in "$@"; do
	test -z "$(version_part "$tree" minor 2>/dev/null)" || continue
	echo "no version in $tree/configure.ac: is it a source tree of UCX?" >&2
	exit 1
done
tree=$1
minor=$(version_part "$tree" minor)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
build "$tree" "$minor" 2>"$tmp/errors" || {
	echo "1.$minor: tests/host/programs/abi.c does not compile against it"
	head -20 "$tmp/errors"
	exit 1
}
if test "$mode" = compare; then
	exec "$tmp/abi"
fi
echo "1.$minor in $tree:"
"$tmp/abi" row || :
echo "uct_iface_internal_ops:"
slots "$tree/src/uct/base/uct_iface.h" uct_iface_internal_ops
echo "uct_md_ops:"
slots "$tree/src/uct/base/uct_md.h" uct_md_ops
if test $# = 2; then
	echo "declared here, and not in $2:"
	comm -23 <(declared "$tree") <(declared "$2") | sed 's/^/  /'
fi
