#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Unpacks a small root of another distribution release, from the mirror that
# this machine already uses, and prints its folder.
#
#   tests/tools/unpack-root.sh old	the oldest release the mirror serves
#   tests/tools/unpack-root.sh musl	musl's libc and headers, nothing else
#   tests/tools/unpack-root.sh python	this release, with Python and a shell
#   tests/tools/unpack-root.sh slurm	Slurm, to be run where it lies
set -eu
cache=${WEFT_CACHE:-$HOME/.cache/weft}
kind=${1:?old, musl, python or slurm}

. "$(dirname "$0")/../lib/apt.sh"

unpack() # SUITE FOLDER [alone] PACKAGE...: with what they need, or alone
{
	local suite=$1 folder=$2 deb
	shift 2
	if test "$1" = alone; then
		shift
		(cd "$cache/apt-$suite/archives" && apt_in "$suite" download "$@")
	else
		apt_in "$suite" -y --download-only install "$@"
	fi || return 1
	rm -rf "$folder.part"
	mkdir -p "$folder.part"
	for deb in "$cache/apt-$suite/archives"/*.deb; do
		dpkg-deb -x "$deb" "$folder.part"
	done
	mkdir -p "$folder.part"/{proc,sys,dev,tmp,weft}
	rm -rf "$cache/apt-$suite"
	mv "$folder.part" "$folder"
}

exec 9>"$cache/root.lock"
flock 9
case $ID in
debian)	older="jessie stretch buster bullseye" ;;
*)	older="xenial bionic focal jammy" ;;
esac
case $kind in
musl)
	folder=$cache/roots/musl
	test -d "$folder" || {
		apt_in "$VERSION_CODENAME" update
		unpack "$VERSION_CODENAME" "$folder" musl musl-dev
	}
	echo "$folder"
	;;
python)
	folder=$cache/roots/$VERSION_CODENAME-python
	test -d "$folder" || {
		apt_in "$VERSION_CODENAME" update
		unpack "$VERSION_CODENAME" "$folder" bash coreutils sed \
			libstdc++6 python3-venv
	}
	echo "$folder"
	;;
slurm)
	# no daemon is to start here, and munge is not needed: auth/none
	folder=$cache/roots/slurm
	test -d "$folder" || {
		apt_in "$VERSION_CODENAME" update
		unpack "$VERSION_CODENAME" "$folder" alone slurmctld slurmd \
			slurm-client slurm-wlm-basic-plugins libhwloc15 libnuma1 liblz4-1
	}
	echo "$folder"
	;;
old)
	for suite in $older; do
		test -d "$cache/roots/$suite" || continue
		echo "$cache/roots/$suite"
		exit 0
	done
	for suite in $older; do
		if apt_in "$suite" update 2>/dev/null &&
			unpack "$suite" "$cache/roots/$suite" bash coreutils; then
			echo "$cache/roots/$suite"
			exit 0
		fi
	done
	echo "the mirror serves none of: $older" >&2
	exit 1
	;;
esac
