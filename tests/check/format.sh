#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# C files are as clang-format leaves them; "make format" rewrites them. Its
# releases differ, so one is asked: 14, which Debian 12 and Ubuntu 24.04 have.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99

release=14
for program in clang-format-$release clang-format; do
	type "$program" >/dev/null 2>&1 &&
		"$program" --version | grep -q " version $release\." && break
	program=
done
test -n "$program" || tap_skip_all "needs clang-format $release"
mapfile -t code < <(project_files '*.c' '*.h')
cd "$WEFT_SRC" || exit 99
tap_nothing "C files are as clang-format leaves them" \
	"$("$program" --dry-run "${code[@]}" 2>&1 | grep 'warning:\|error:')"
tap_done
