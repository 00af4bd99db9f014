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
	"make dist: there is no xz "

dist() # MASK ZONE: the tarball of a folder of its own, and its hash
{
	(
		umask "$1"
		MAKEFLAGS="" XZ_OPT=-0 TZ=$2 make -s -C "$WEFT_BUILD" \
			distdir=weft-twice dist >"$tap_tmp/log" 2>&1 &&
			mv "$WEFT_BUILD/weft-twice.tar.xz" "$tap_tmp" &&
			sha256sum <"$tap_tmp/weft-twice.tar.xz"
	)
}
if ! command -v xz >/dev/null || ! command -v python3 >/dev/null; then
	tap_skip "two tarballs of the same tree are the same" "needs xz and python3"
elif first=$(dist 022 UTC) && second=$(dist 077 Asia/Tokyo); then
	tap_equal "two tarballs of the same tree are the same" "$second" "$first"
	tar -xJf "$tap_tmp/weft-twice.tar.xz" -C "$tap_tmp"
	cd "$tap_tmp/weft-twice" || exit 99
	find . -type f ! -name weft.spdx.json -exec sha256sum {} + |
		sort >"$tap_tmp/files"
	tap_nothing "its weft.spdx.json has every file, by its hash" "$(
		python3 - <<-'END' | sort | diff "$tap_tmp/files" -
			import json
			for file in json.load(open("weft.spdx.json"))["files"]:
			    print(file["checksums"][1]["checksumValue"], "",
			          file["fileName"])
		END
	)"
	cd "$WEFT_SRC" || exit 99
else
	tap_not_ok "make dist" "$(tail "$tap_tmp/log")"
fi

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
