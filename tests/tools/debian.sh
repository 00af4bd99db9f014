#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The Debian package: built, looked at by lintian, installed and removed. In a
# copy, since debian/rules builds where the sources lie.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
for tool in dh dpkg-buildpackage lintian; do
	command -v $tool >/dev/null || tap_skip_all "there is no $tool"
done
test "$(id -u)" = 0 || tap_skip_all "needs root, for dpkg and chroot"
root=$(bash "$WEFT_SRC/tests/tools/unpack-root.sh" python 2>/dev/null) ||
	tap_skip_all "no root to install it in"
tap_folder
mkdir "$tap_tmp/weft"
(cd "$WEFT_SRC" && project_files '*' | tar -c -T - | tar -x -C "$tap_tmp/weft") ||
	exit 99
unset WEFT_BUILD
(cd "$tap_tmp/weft" && MAKEFLAGS="" dpkg-buildpackage -b -us -uc) \
	>"$tap_tmp/log" 2>&1 </dev/null || {
	tap_not_ok "dpkg-buildpackage -b" "$(tail -20 "$tap_tmp/log")"
	tap_done
}
tap_ok "dpkg-buildpackage -b"
cd "$tap_tmp" || exit 99
tap_nothing "lintian has nothing to say" "$(lintian --allow-root \
	--fail-on none --display-info ./*.changes 2>&1 | grep -v '^N:')"

# A database of packages of its own, and the files of a small Debian.
mkdir -p fresh/var/lib/dpkg/updates && cp -a "$root/." fresh
touch fresh/var/lib/dpkg/status
before=$(find fresh ! -type d ! -path '*/dpkg/*' | sort)
dpkg_in_root() # ARGUMENT...
{
	dpkg --root="$PWD/fresh" --force-depends --force-not-root \
		--log=/dev/null "$@" >log 2>&1 || tap_not_ok "dpkg $1" "$(cat log)"
}
dpkg_in_root --install weft_*.deb
tap_equal "weft is on PATH, and finds its library" \
	"$(env -i PATH=/usr/bin:/bin "$(command -v chroot)" fresh weft run \
		bash -c 'echo $LD_PRELOAD' 2>&1)" \
	"/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)/weft/libweft_preload.so"
dpkg_in_root --purge weft
tap_equal "purging leaves nothing" \
	"$(find fresh ! -type d ! -path '*/dpkg/*' | sort)" "$before"
tap_done
