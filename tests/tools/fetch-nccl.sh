#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Fetches NCCL's plugin headers, for the comparison with weft's declarations,
# from the source package of Debian's newest release (1.3 MB; it has those of all
# versions of the interface up to its own). Prints their folder; what is already
# in the cache is not fetched again.
#
#   tests/tools/fetch-nccl.sh [--list]
#
# --list prints what is here and fetches nothing. Python's packages of NCCL have
# 200 MB, and leave these headers out from 2.24 on.
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
