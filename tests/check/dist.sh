#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A release tarball has every file that git has.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
cd "$WEFT_SRC" || exit 99
test "$(git rev-parse --show-toplevel 2>/dev/null)" = "$PWD" ||
	tap_skip_all "this is no git tree"
files=$(MAKEFLAGS='' make -s -C "$WEFT_BUILD" print-distfiles) || {
	tap_not_ok "make print-distfiles"
	tap_done
}
tap_nothing "every file of git's is in the tarball" \
	"$(project_files | grep -vx '\.gitignore' |
		comm -23 - <(sort -u <<<"$files"))"
tap_done
