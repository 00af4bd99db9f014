#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The wheel for aarch64, cross-built: what it promises, and that its command
# starts, in an emulator. Needs the network once.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
cache=${WEFT_CACHE:-$HOME/.cache/weft}
host=aarch64-linux-gnu
for tool in $host-gcc qemu-aarch64; do
	command -v $tool >/dev/null ||
		tap_skip_all "there is no $tool (gcc-aarch64-linux-gnu, qemu-user)"
done
tools=$(bash "$WEFT_SRC/tests/tools/venv.sh" --list package)
test -n "$tools" ||
	tap_skip_all "no hatchling in the cache (tests/tools/venv.sh package)"
tap_folder

# libsodium's archive and rdma-core's headers, as Debian builds them for it
. "$WEFT_SRC/tests/lib/apt.sh"
apt_arm() { apt_in "$VERSION_CODENAME" -o APT::Architecture=arm64 \
	-o APT::Architectures=arm64 "$@"; }
prefix=$cache/roots/$host
if ! test -d "$prefix"; then
	{ cd "$tap_tmp" && apt_arm update &&
		apt_arm download libsodium-dev libibverbs-dev; } \
		2>"$tap_tmp/why" ||
		tap_skip_all "no arm64 packages: $(tail -1 "$tap_tmp/why")"
	for deb in "$tap_tmp"/*.deb; do
		dpkg-deb -x "$deb" "$tap_tmp/debs"
	done
	ln -s "$host/libsodium.a" "$tap_tmp/debs/usr/lib"
	mkdir -p "$cache/roots"
	mv "$tap_tmp/debs/usr" "$prefix"
	# it holds lists of the other architecture
	rm -rf "$cache/apt-$VERSION_CODENAME"
fi

mkdir "$tap_tmp/build"
cd "$tap_tmp/build" || exit 99
unset WEFT_BUILD
{ "$WEFT_SRC/configure" -q --host=$host --with-libsodium="$prefix" \
	--with-verbs="$prefix" --without-criterion CC=$host-gcc &&
	make -s -j"$(nproc)" wheel PYTHON="$tools/bin/python"; } \
	>"$tap_tmp/log" 2>&1 || {
	tap_not_ok "the wheel is built" "$(tail -20 "$tap_tmp/log")"
	tap_done
}
tag=manylinux_2_28_aarch64
wheel=$(echo weft-*-py3-none-$tag.whl)
"$tools/bin/auditwheel" show --json "$wheel" >"$tap_tmp/audit"
tap_equal "auditwheel finds what the tag promises" \
	"$(sed -n 's/ *"\(overall_tag\|sym_tag\)": //p' \
		"$tap_tmp/audit" | tr -d '\n')" "\"$tag\",\"$tag\","
python3 -m zipfile -e "$wheel" "$tap_tmp/unpacked"
weft=$tap_tmp/unpacked/weft/bin/weft
chmod +x "$weft"
tap_equal "the command starts" "$(qemu-aarch64 -L /usr/$host "$weft" --version)" \
	"weft $(sed 's/weft-\([^-]*\)-.*/\1/' <<<"$wheel")"
tap_equal "each library is found beside it, and loads" "$(
	for file in libweft_preload.so libnccl-net-weft.so libnccl-env-weft.so \
		ucx/libuct_weft.so; do
		qemu-aarch64 -L /usr/$host -E \
			LD_PRELOAD="$tap_tmp/unpacked/weft/lib/$file" \
			"$weft" --version 2>&1 || echo "$file"
	done | sort -u)" "$(qemu-aarch64 -L /usr/$host "$weft" --version)"
tap_done
