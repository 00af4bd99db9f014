#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs each libFuzzer target of a build made with --enable-fuzzers for some
# seconds, starting from its corpus; what it finds stays in the build folder.
#
#   tests/fuzz/run.sh BUILD SECONDS
set -u
build=${1:?the build folder}
seconds=${2:?seconds per target}
src=$(cd "$(dirname "$0")" && pwd)
count=0
rc=0
for target in "$build"/tests/fuzz/*_fuzz; do
	test -x "$target" || continue
	name=$(basename "$target" _fuzz)
	found=$build/corpus/$name
	mkdir -p "$found"
	count=$((count + 1))
	said=$build/corpus/$name.log
	if "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
		-verbosity=0 -print_final_stats=1 \
		-artifact_prefix="$build/corpus/$name-" \
		"$found" "$src/corpus/$name" >"$said" 2>&1; then
		echo "ok $count - $name, $seconds s"
	else
		echo "not ok $count - $name: the input lies in $build/corpus"
		# the input itself, too: who sees only this text can run it again
		grep -E '^(frames|==|SUMMARY|    #|Base64)|ERROR|error' "$said" |
			cut -c1-2000 | head -40 | sed 's/^/# /'
		rc=1
	fi
done
echo "1..$count"
exit $rc
