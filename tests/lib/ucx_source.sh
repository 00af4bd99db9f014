# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash disable=SC2154 # cache is the caller's
# The source of UCX: sets source and version. The tree that WEFT_UCX_SOURCE
# names, or Debian's package, of this machine's suite or of the newest that weft
# knows; it stays in $cache/ucx-source.

ucx_minor_max()
{
	sed -n 's/^#define WEFT_UCX_MINOR_MAX[^0-9]*\([0-9]*\).*/\1/p' \
		"$(dirname "${BASH_SOURCE[0]}")/../../settings/settings.h"
}

# The suite of this distribution with the newest release that weft knows.
ucx_newest_suite()
{
	local suite version best='' found=$VERSION_CODENAME
	for suite in "$VERSION_CODENAME" stable testing unstable; do
		apt_in "$suite" update 2>/dev/null || continue
		# apt keeps its lists compressed, or not
		version=$(/usr/lib/apt/apt-helper cat-file \
				"$cache/apt-$suite"/lists/*_source_Sources* |
			sed -n '/^Package: ucx$/,/^$/s/^Version: //p' | tail -1)
		case $version in
		1.*) test "$(cut -d. -f2 <<<"$version")" -le "$(ucx_minor_max)" &&
			dpkg --compare-versions "$version" gt "$best" &&
			best=$version found=$suite ;;
		esac
	done
	echo "$found"
}

ucx_source() # own|newest
{
	local sources suite
	if test -n "${WEFT_UCX_SOURCE-}"; then
		source=$(cd "$WEFT_UCX_SOURCE" && pwd)
	else
		sources=$cache/ucx-source${1#own}
		source=$(ls -d "$sources"/ucx-*/ 2>/dev/null | head -1)
		if test -z "$source"; then
			. "$(dirname "${BASH_SOURCE[0]}")/apt.sh"
			suite=$VERSION_CODENAME
			test "$1" = own || suite=$(ucx_newest_suite)
			apt_in "$suite" update
			rm -rf "$sources"
			mkdir -p "$sources"
			(cd "$sources" && apt_in "$suite" source ucx)
			rm -rf "$cache"/apt-*
			source=$(ls -d "$sources"/ucx-*/ | head -1)
		fi
	fi
	source=${source%/}
	version=$(sed -n 's/^define(\[ucx_ver_\(major\|minor\|patch\)\], *\([0-9]*\).*/\2/p' \
		"$source/configure.ac" | paste -sd.)
	test -n "$version" ||
		{ echo "$source is no UCX source tree" >&2; exit 1; }
}
