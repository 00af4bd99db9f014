#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weft for other processors, cross-built and run in an emulator: its command, its
# libraries, the corpora of the fuzzers, and every behaviour over TCP; of aarch64
# the wheel, too. Needs the network once.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
cache=${WEFT_CACHE:-$HOME/.cache/weft}
. "$WEFT_SRC/tests/lib/apt.sh"
tap_folder
unset WEFT_BUILD

# libsodium's archive and rdma-core's headers, as Debian builds them for it
packages() # DEBIAN-ARCHITECTURE
{
	local options=(-o APT::Architecture="$1" -o APT::Architectures="$1") deb
	prefix=$cache/roots/$host
	test ! -d "$prefix" || return 0
	rm -rf "$tap_tmp/debs"
	mkdir "$tap_tmp/debs"
	# its lists are of the other architecture
	(cd "$tap_tmp/debs" && apt_in "$VERSION_CODENAME" "${options[@]}" update &&
		apt_in "$VERSION_CODENAME" "${options[@]}" download \
			libsodium-dev libibverbs-dev) 2>"$tap_tmp/why"
	rm -rf "$cache/apt-$VERSION_CODENAME"
	for deb in "$tap_tmp"/debs/*.deb; do
		dpkg-deb -x "$deb" "$tap_tmp/debs" 2>/dev/null || return 1
	done
	ln -s "$host/libsodium.a" "$tap_tmp/debs/usr/lib"
	mkdir -p "$cache/roots"
	mv "$tap_tmp/debs/usr" "$prefix"
}

run() { "$emulator" -L "/usr/$host" "$@"; }

# Every library is found beside the others, and loads.
loads() # NAME FOLDER
{
	local version file
	version="weft $(sed -n 's/^AC_INIT(\[weft\], \[\(.*\)\])/\1/p' \
		"$WEFT_SRC/configure.ac")"
	tap_equal "$1: the command starts, and each library loads" "$(
		for file in "$2"/lib/{libweft_preload,libnccl-net-weft}.so \
			"$2"/lib/{libnccl-env-weft,ucx/libuct_weft}.so; do
			run -E LD_PRELOAD="$file" "$2/bin/weft" --version 2>&1 ||
				echo "$file"
		done | sort | uniq -c | tr -s ' ')" " 4 $version"
}

programs()
{
	local replays replay rc line
	cd "$tap_tmp/$cpu" || return
	replays=$(sed -n 's/^fuzz_replays = //p; /^\t%D%\/.*_replay/p' \
		"$WEFT_SRC/tests/fuzz/include.am" | tr -d '\\' |
		sed 's|%D%|tests/fuzz|')
	# shellcheck disable=SC2086 # a list
	make -s -j"$(nproc)" tests/conformance/conformance $replays \
		>"$tap_tmp/log" 2>&1 || {
		tap_not_ok "$cpu: programs of the tests are built" \
			"$(tail -20 "$tap_tmp/log")"
		return
	}
	for replay in $replays; do
		run "$replay" >"$tap_tmp/log" 2>&1
		rc=$?
		tap_equal "$cpu: ${replay##*/}" \
			"$rc $(grep '^not ok' "$tap_tmp/log")" "0 "
	done
	run tests/conformance/conformance -d tcp >"$tap_tmp/log" 2>&1
	rc=$?
	tap_equal "$cpu: conformance over tcp" \
		"$rc $(grep '^not ok' "$tap_tmp/log")" "0 "
	while read -r line; do
		tap_skip "$cpu: ${line%% # SKIP*}" "${line##* # SKIP }"
	done < <(sed -n '/# SKIP/s/^ok [0-9]* - //p' "$tap_tmp/log")
}

wheel()
{
	local tools tag=manylinux_2_28_$cpu wheel
	tools=$(bash "$WEFT_SRC/tests/tools/venv.sh" --list package)
	test -n "$tools" || {
		tap_skip "$cpu: the wheel" \
			"no hatchling in the cache (tests/tools/venv.sh package)"
		return
	}
	make -s wheel PYTHON="$tools/bin/python" >"$tap_tmp/log" 2>&1 || {
		tap_not_ok "$cpu: the wheel is built" "$(tail -20 "$tap_tmp/log")"
		return
	}
	wheel=$(echo weft-*-py3-none-"$tag".whl)
	"$tools/bin/auditwheel" show --json "$wheel" >"$tap_tmp/audit"
	tap_equal "$cpu: auditwheel finds what the tag promises" \
		"$(sed -n 's/ *"\(overall_tag\|sym_tag\)": //p' \
			"$tap_tmp/audit" | tr -d '\n')" "\"$tag\",\"$tag\","
	python3 -m zipfile -e "$wheel" "$tap_tmp/unpacked"
	chmod +x "$tap_tmp/unpacked/weft/bin/weft"
	loads "$cpu, of the wheel" "$tap_tmp/unpacked/weft"
}

try() # CPU COMPILER DEBIAN-ARCHITECTURE EMULATOR
{
	local cpu=$1 host=$2-linux-gnu emulator=$4 tool prefix
	for tool in "$host-gcc" "$emulator"; do
		command -v "$tool" >/dev/null || {
			tap_skip "$cpu" "there is no $tool (gcc-$host, qemu-user)"
			return
		}
	done
	packages "$3" || {
		tap_skip "$cpu" "no packages of $3: $(tail -1 "$tap_tmp/why")"
		return
	}
	mkdir "$tap_tmp/$cpu"
	cd "$tap_tmp/$cpu" || exit 99
	{ "$WEFT_SRC/configure" -q --host="$host" --with-libsodium="$prefix" \
		--with-verbs="$prefix" --without-criterion CC="$host-gcc" &&
		make -s -j"$(nproc)" &&
		make -s install-prefix WHERE="$tap_tmp/$cpu/prefix"; } \
		>"$tap_tmp/log" 2>&1 || {
		tap_not_ok "$cpu: weft is built" "$(tail -20 "$tap_tmp/log")"
		return
	}
	loads "$cpu" "$tap_tmp/$cpu/prefix"
	programs
	test "$cpu" != aarch64 || wheel
}

try aarch64 aarch64 arm64 qemu-aarch64
try ppc64le powerpc64le ppc64el qemu-ppc64le
tap_done
