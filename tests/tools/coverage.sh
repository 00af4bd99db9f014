#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What the unit tests and the command's run of weft, line by line (gcov, gcovr):
# a figure, and the ten files of which they run least.
#
#   tests/tools/coverage.sh FOLDER
#
# Builds in FOLDER. A test that fails here fails in `make check` as well, and is not
# reported.
set -eu
src=$(cd "$(dirname "$0")/../.." && pwd)
test $# = 1 || { sed -n 's/^# \{0,1\}//;3,8p' "$0" >&2; exit 2; }
mkdir -p "$1"
cd "$1"
test -e Makefile ||
	"$src/configure" -q CFLAGS="-O0 --coverage -fprofile-update=atomic"
make -s -j"$(nproc)" all
tests=$(make -s print-tests | tr ' ' '\n' | grep -E '^tests/(unit|cli)/' | xargs)
make -s -j"$(nproc)" check TESTS="$tests" || true
gcovr -r "$src" --object-directory . --gcov-ignore-parse-errors \
	-e '(.*/)?(tests|bench|examples)/' --csv 2>gcovr.log |
	awk -F, 'NR > 1 && $2 {
			all += $2; run += $3
			printf "%3d %%  %s\n", 100 * $3 / $2, $1 >"files"
		}
		END {
			printf "%d of %d lines run (%d %%); the least of:\n",
				run, all, 100 * run / all
		}'
sort -n files | head -10
