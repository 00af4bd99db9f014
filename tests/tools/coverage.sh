#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What the tests that ran in BUILD have run of weft, line by line (gcov, gcovr): a
# figure, and the ten files of which they run least. BUILD has CPPFLAGS=--coverage
# and LDFLAGS=--coverage.
#
#   tests/tools/coverage.sh BUILD
set -eu
src=$(cd "$(dirname "$0")/../.." && pwd)
test $# = 1 || { sed -n 's/^# \{0,1\}//;3,7p' "$0" >&2; exit 2; }
cd "$1"
gcovr -r "$src" --object-directory . --gcov-ignore-parse-errors \
	-e '(.*/)?(tests|bench|examples)/' --csv 2>gcovr.log |
	awk -F, 'NR > 1 && $2 {
			all += $2; run += $3
			printf "%3d %%  %s\n", 100 * $3 / $2, $1 >"files"
		}
		END {
			if (!all)
				exit 1
			printf "%d of %d lines run (%d %%); the least of:\n",
				run, all, 100 * run / all
		}'
sort -n files | head -10
