#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Fetches the UCX builds that users have, for the tests: one release per row of
# the plugin's table of layouts. Prints "VERSION PREFIX" for each, the system's
# own first; what is already in the cache is not fetched again.
#
#   tests/tools/fetch-ucx.sh [--list] [VERSION...]
#
# --list prints what is here and fetches nothing. 1.23 is the UCX within NIXL's
# wheel (69 MB; 138 MB unpacked), since no other package has it; there is more of
# it, for NIXL's own tests, in the folder nixl beside PREFIX.
set -eu
cache=${WEFT_CACHE:-$HOME/.cache/weft}

# folder (the version of UCX, with the post of PyPI's), package
releases="
1.15.0.post2 libucx-cu12==1.15.0.post2
1.16.0.post1 libucx-cu12==1.16.0.post1
1.18.1 libucx-cu12==1.18.1
1.20.0 libucx-cu12==1.20.0
1.21.0 libucx-cu13==1.21.0
1.22.0 libucx-cu13==1.22.0
1.23.0 nixl-cu12==1.5.1
"

fetch() # PACKAGE==VERSION FOLDER
{
	local wheels=$cache/wheels part=$2.part wheel
	local pip=(python3 -m pip download --quiet --disable-pip-version-check
		--no-deps --only-binary :all: --dest "$wheels")
	mkdir -p "$wheels"
	echo "fetching $1" >&2
	# NIXL has a wheel per version of Python, with the same UCX in each
	"${pip[@]}" "$1" >&2 || "${pip[@]}" --python-version 3.11 "$1" >&2
	wheel=${1//==/-}
	wheel=$(ls "$wheels/${wheel/-cu/_cu}"-*.whl)
	rm -rf "$part"
	mkdir -p "$part"
	python3 -m zipfile -e "$wheel" "$part"
	test -d "$part/libucx" || shape_nixl "$part" "$(dirname "$2")/1.22.0"
	# zip keeps no modes
	chmod +x "$part"/libucx/bin/*
	mv "$part" "$2"
	rm -f "$wheel"
}

# A prefix like those of the other packages.  In the wheel the libraries have
# names of their own (libucp-HASH.so.0.0.0, and so in DT_NEEDED), and there are
# no programs: those of 1.22 run with them.  The modules for verbs stay out: they
# need libraries that crash in exit().
shape_nixl() # FOLDER PREFIX-OF-1.22
{
	local lib=$1/libucx/lib l file
	test -d "$2" || fetch libucx-cu13==1.22.0 "$2"
	rm -rf "$1"/nixl_ep_* "$1"/*.data
	mkdir "$1/nixl"
	mv "$1"/nixl_* "$1"/.nixl_* "$1/nixl"
	mkdir -p "$lib/ucx" "$1/libucx/bin"
	for l in m s t p; do
		file=$(ls "$1"/nixl/nixl_*.libs/libuc$l-*.so.*)
		ln "$file" "$lib"
		ln -s "$(basename "$file")" "$lib/libuc$l.so.0"
	done
	# by either name, as UCX's own library is called
	for l in libuct_cma libuct_cuda libucm_cuda; do
		ln "$1"/nixl/nixl_*.libs/ucx/$l.so.0.0.0 "$lib/ucx"
		ln -s $l.so.0.0.0 "$lib/ucx/$l.so.0"
	done
	cp "$2"/libucx/bin/ucx_{info,perftest} "$1/libucx/bin"
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
		fetch "$package" "$folder"
	fi
	echo "${version%.post*} $folder/libucx"
done <<<"$releases"
