#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A release tarball has every file that git has; what is installed of the
# documents is whole.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
cd "$WEFT_SRC" || exit 99
tap_folder
MAKEFLAGS="" make -s -C "$WEFT_BUILD" DESTDIR="$tap_tmp" docdir=/doc \
	install-dist_docDATA install-dist_docsDATA \
	install-dist_performanceDATA install-dist_recipesDATA >"$tap_tmp/log" 2>&1
tap_nothing "links hold where the pages are installed" "$(
	cd "$tap_tmp/doc" || exit
	find . -name '*.md' | while read -r page; do
		grep -o '](\([^)#]*\)' "$page" | tr -d '](' | sort -u |
			while read -r file; do
				test -e "$(dirname "$page")/$file" ||
					echo "$page: $file"
			done
	done)"
version=$(sed -n 's/^AC_INIT(\[weft\], \[\(.*\)\])/\1/p' configure.ac)
tap_equal "the Debian package and the examples' image are of this version" \
	"$(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog
	   sed -n 's/.*image: .*weft://p' examples/kubernetes{,-dra}.yaml)" \
	"$version"$'\n'"$version"$'\n'"$version"
seen=$(MAKEFLAGS="" PATH=$tap_tmp "$(type -P make)" -s -C "$WEFT_BUILD" \
	dist-hook 2>&1)
tap_equal "make dist says that xz is missing" "${seen%%(*}" \
	"make dist: there is no xz to compress with "

test "$(git rev-parse --show-toplevel 2>/dev/null)" = "$PWD" || {
	tap_skip "every file of git's is in the tarball" "this is no git tree"
	tap_done
}
tap_nothing "git ignores what a build where the source lies makes" "$({
	MAKEFLAGS='' make -s -C "$WEFT_BUILD" print-programs
	printf '%s\n' "weft-$version/" "weft-$version.tar."{gz,xz} \
		debian/{.debhelper/,files,weft/,tmp/,weft.substvars} \
		debian/debhelper-build-stamp
} | git check-ignore --no-index -vn --stdin | sed -n 's/^::\t/not ignored: /p')"
files=$(MAKEFLAGS='' make -s -C "$WEFT_BUILD" print-distfiles) || {
	tap_not_ok "make print-distfiles"
	tap_done
}
tap_nothing "every file of git's is in the tarball" \
	"$(project_files | grep -vx '\.gitignore' |
		comm -23 - <(sort -u <<<"$files"))"
tap_done
