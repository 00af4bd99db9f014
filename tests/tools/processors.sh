#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# weft for other processors, cross-built and run in an emulator: its command, its
# libraries, the corpora of the fuzzers, and every behaviour over TCP; of aarch64
# the unit tests and the wheel, too. Needs the network once.
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

# WEFT_BUILD: for the fake GPU driver
run() { WEFT_BUILD=$tap_tmp/$cpu "$emulator" -L "/usr/$host" "$@"; }

passes() # NAME COMMAND...
{
	local name=$1 rc
	shift
	"$@" >"$tap_tmp/log" 2>&1
	rc=$?
	tap_equal "$cpu: $name" \
		"$rc $(grep -a 'FAIL\|^not ok' "$tap_tmp/log")" "0 "
}

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
	local replays replay line
	cd "$tap_tmp/$cpu" || return
	replays=$(sed -n 's/^fuzz_replays = //p; /^\t%D%\/.*_replay/p' \
		"$WEFT_SRC/tests/fuzz/include.am" | tr -d '\\' |
		sed 's|%D%|tests/fuzz|')
	# shellcheck disable=SC2086 # a list
	make -s -j"$(nproc)" tests/conformance/conformance $replays \
		tests/lib/libfake_cuda.la \
		>"$tap_tmp/log" 2>&1 || {
		tap_not_ok "$cpu: programs of the tests are built" \
			"$(tail -20 "$tap_tmp/log")"
		return
	}
	for replay in $replays; do
		passes "${replay##*/}" run "$replay"
	done
	passes "conformance over tcp" run tests/conformance/conformance -d tcp
	while read -r line; do
		tap_skip "$cpu: ${line%% # SKIP*}" "${line##* # SKIP }"
	done < <(sed -n '/# SKIP/s/^ok [0-9]* - //p' "$tap_tmp/log")
}

# Those that need no other user, and nothing that qemu-user has not: madvise(),
# resource limits, an interface's speed.
units="util/clock util/hash util/list util/log util/parse util/random
	util/table settings/settings host/host host/netdevs host/verbs
	host/verbs_lists bootstrap/address bootstrap/hello devices/common/conn
	devices/common/ep devices/common/ep_number devices/common/events
	devices/nvlink/nvl_lies devices/nvlink/nvl_proof devices/common/region
	devices/tcp/tcp_bulk devices/tcp/tcp_land devices/tcp/tcp_tune
	devices/common/unproven nccl_net/abi nccl_net/close nccl_net/connect
	nccl_net/files nccl_net/life nccl_net/net nccl_net/wire stats/stats
	ucx_tl/abi ucx_tl/component ucx_tl/ep ucx_tl/iface ucx_tl/md
	ucx_tl/perf preload/sleep ucx_tl/status ucx_tl/tls ucx_tl/ucxenv"

# Criterion with all that it needs, where Debian has it.
criterion() # DEBIAN-ARCHITECTURE
{
	local options=(-o APT::Architecture="$1" -o APT::Architectures="$1")
	local state=$cache/apt-$VERSION_CODENAME deb
	criterion=$cache/roots/$host-criterion
	test ! -d "$criterion" || return 0
	{ apt_in "$VERSION_CODENAME" "${options[@]}" update &&
		apt_in "$VERSION_CODENAME" "${options[@]}" -y --download-only \
			install libcriterion-dev; } 2>"$tap_tmp/why" &&
		for deb in "$state"/archives/*.deb; do
			dpkg-deb -x "$deb" "$tap_tmp/criterion" || return
		done && mv "$tap_tmp/criterion" "$criterion"
	rm -rf "$state"
	test -d "$criterion"
}

# Criterion starts each test as a program, so the kernel must know the emulator.
# Since Linux 6.7 a user namespace may have that for itself.
emulated() # COMMAND...
{
	# shellcheck disable=SC2016 # the inner shell's
	WEFT_BUILD=$tap_tmp/$cpu QEMU_LD_PREFIX=$criterion unshare -Urm --pid --fork --kill-child \
		--mount-proc sh -c '
		mount -t binfmt_misc none /proc/sys/fs/binfmt_misc &&
		printf %s ":arm:M::$0:$1:$2:F" \
			>/proc/sys/fs/binfmt_misc/register &&
		shift 2 && exec "$@"' \
		'\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00' \
		'\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff' \
		"$(command -v "$emulator")" "$@"
}

unit_tests() # DEBIAN-ARCHITECTURE
{
	local programs="" unit
	criterion "$1" || {
		tap_skip "$cpu: unit tests" \
			"no Criterion for it: $(tail -1 "$tap_tmp/why")"
		return
	}
	emulated true 2>/dev/null || {
		tap_skip "$cpu: unit tests" \
			"this kernel takes no emulator (binfmt_misc in a user namespace)"
		return
	}
	for unit in $units; do
		programs+=" tests/unit/${unit}_test"
	done
	# shellcheck disable=SC2086 # a list
	make -s -j"$(nproc)" $programs CPPFLAGS="-idirafter $criterion/usr/include" \
		CRITERION_LIBS="$criterion/usr/lib/$host/libcriterion.so.3 -Wl,--allow-shlib-undefined" \
		>"$tap_tmp/log" 2>&1 || {
		tap_not_ok "$cpu: unit tests are built" "$(tail -20 "$tap_tmp/log")"
		return
	}
	for unit in $units; do
		passes "$unit" emulated "tests/unit/${unit}_test"
	done
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
		--with-verbs="$prefix" --with-criterion CC="$host-gcc" \
		ac_cv_header_criterion_new_assert_h=yes \
		ac_cv_lib_criterion_criterion_run_all_tests=yes &&
		make -s -j"$(nproc)" &&
		make -s install-prefix WHERE="$tap_tmp/$cpu/prefix"; } \
		>"$tap_tmp/log" 2>&1 || {
		tap_not_ok "$cpu: weft is built" "$(tail -20 "$tap_tmp/log")"
		return
	}
	loads "$cpu" "$tap_tmp/$cpu/prefix"
	programs
	# Debian has no Criterion for ppc64el
	test "$cpu" != aarch64 || {
		unit_tests "$3"
		wheel
	}
}

try aarch64 aarch64 arm64 qemu-aarch64
try ppc64le powerpc64le ppc64el qemu-ppc64le
tap_done
