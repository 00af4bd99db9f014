#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Fetches NCCL's plugin headers, for the comparison with weft's declarations,
# from the source package of Debian's newest release (1.3 MB; it has those of all
# versions of the interface up to its own). Prints their folder; what is already
# in the cache is not fetched again.
#
#   tests/tools/fetch-nccl.sh [--list]
#   tests/tools/fetch-nccl.sh --wheel VERSION FOLDER [PACKAGE]
#
# --list prints what is here and fetches nothing. Python's packages of NCCL leave
# these headers out from 2.24 on; --wheel fetches one of those, of 50 to 350 MB,
# into FOLDER, and prints its path. PACKAGE: nvidia-nccl-cu12, or as given.
set -eu
headers=${WEFT_CACHE:-$HOME/.cache/weft}/nccl-headers
suite=sid

list()
{
	local folder
	for folder in "$headers/$suite"-*; do
		test ! -d "$folder" || echo "$folder"
	done
}

wheel() # VERSION FOLDER [PACKAGE]
{
	local tag platforms=()
	for tag in manylinux1 manylinux2014 manylinux_2_17 manylinux_2_18 \
		manylinux_2_27 manylinux_2_28; do
		platforms+=(--platform "${tag}_x86_64")
	done
	mkdir -p "$2"
	python3 -m pip download --quiet --disable-pip-version-check \
		--no-cache-dir --no-deps --only-binary :all: \
		"${platforms[@]}" --dest "$2" "${3-nvidia-nccl-cu12}==$1" >&2
	ls "$2"/nvidia_nccl*-"$1"-*.whl
}

# What an author of plugins gets, in one folder: the examples' headers, and the
# tuners' of all versions, which are among NCCL's own.
fetch()
{
	local part=$headers/part cache=$headers/part/apt source version
	rm -rf "$part"
	mkdir -p "$part/source" "$part/headers/tuner"
	echo "fetching the source package nvidia-nccl of $suite" >&2
	apt_in $suite update
	(cd "$part" && apt_in $suite source --tar-only nvidia-nccl)
	source=$(ls "$part"/nvidia-nccl_*.orig.tar.*)
	version=${source#*nvidia-nccl_}
	tar -x -C "$part/source" --strip-components=1 -f "$source"
	cp "$part"/source/plugins/net/example/nccl/*.h \
		"$part"/source/plugins/env/example/nccl/env_v*.h \
		"$part/headers"
	cp "$part"/source/src/include/plugin/tuner/tuner_v*.h \
		"$part/headers/tuner"
	mv "$part/headers" "$headers/$suite-${version%%-*}"
	rm -rf "$part"
}

if test "${1-}" = --wheel; then
	wheel "${@:2}"
	exit
fi
if test -z "$(list)" && test "${1-}" != --list; then
	. "$(dirname "$0")/../lib/apt.sh"
	if test "$ID" != debian; then
		echo "no archive of $ID is known to have NCCL's source" >&2
		exit 1
	fi
	mkdir -p "$headers"
	exec 9>"$headers/lock"
	flock 9
	components="contrib"
	test -n "$(list)" || fetch
fi
list
