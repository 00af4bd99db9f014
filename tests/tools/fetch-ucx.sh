#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Fetches the UCX builds that users have, for the tests: one release per row of
# the plugin's table of layouts. Prints "VERSION PREFIX" for each, the system's
# own first; what is already in the cache is not fetched again.
#
#   tests/tools/fetch-ucx.sh [--list] [VERSION...]
#
# --list prints what is here and fetches nothing.
set -eu
cache=${WEFT_CACHE:-$HOME/.cache/weft}

# version in PyPI, package
releases="
1.15.0.post2 libucx-cu12
1.16.0.post1 libucx-cu12
1.18.1 libucx-cu12
1.20.0 libucx-cu12
1.21.0 libucx-cu13
1.22.0 libucx-cu13
"

fetch() # VERSION PACKAGE FOLDER
{
	local wheels=$cache/wheels part=$3.part wheel
	mkdir -p "$wheels"
	echo "fetching $2 $1" >&2
	python3 -m pip download --quiet --disable-pip-version-check --no-deps \
		--only-binary :all: --dest "$wheels" "$2==$1" >&2
	wheel=$(ls "$wheels/${2//-/_}-$1"-*.whl)
	rm -rf "$part"
	mkdir -p "$part"
	python3 -m zipfile -e "$wheel" "$part"
	# zip keeps no modes
	chmod +x "$part"/libucx/bin/*
	mv "$part" "$3"
	rm -f "$wheel"
}

list=
case ${1-} in
--list)	list=yes; shift ;;
-*)	echo "usage: $0 [--list] [VERSION...]" >&2; exit 2 ;;
esac
wanted() # VERSION OF ARGUMENTS
{
	local version=$1 arg
	shift
	test $# = 0 && return 0
	for arg in "$@"; do
		case $version in
		"$arg" | "$arg".*) return 0 ;;
		esac
	done
	return 1
}

mkdir -p "$cache"
exec 9>"$cache/ucx.lock"
flock 9

system=$(dpkg-query -W -f '${Version}' libucx0 2>/dev/null | sed 's/[-+~].*//')
if test -n "$system" && wanted "$system" "$@"; then
	echo "$system /usr"
fi
while read -r version package; do
	test -n "$version" && wanted "$version" "$@" || continue
	folder=$cache/ucx/$version
	if ! test -d "$folder"; then
		test -z "$list" || continue
		fetch "$version" "$package" "$folder"
	fi
	echo "${version%.post*} $folder/libucx"
done <<<"$releases"
