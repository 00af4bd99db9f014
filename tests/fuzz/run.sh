#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs each libFuzzer target of a build made with --enable-fuzzers for some
# seconds, starting from its corpus, as many at a time as there are processors;
# what it finds stays in the build folder.
#
#   tests/fuzz/run.sh BUILD SECONDS
set -u
build=${1:?the build folder}
seconds=${2:?seconds per target}
src=$(cd "$(dirname "$0")" && pwd)
WEFT_BUILD=$(cd "$build" && pwd) # the fake driver is there
export WEFT_BUILD

fuzz() # NAME
{
	local found=$build/corpus/$1
	mkdir -p "$found"
	"$build/tests/fuzz/$1_fuzz" -max_total_time="$seconds" -timeout=10 \
		-rss_limit_mb=2048 -verbosity=0 -print_final_stats=1 \
		-artifact_prefix="$found-" "$found" "$src/corpus/$1" \
		>"$found.log" 2>&1
	echo $? >"$found.exit"
}

names=()
for target in "$build"/tests/fuzz/*_fuzz; do
	test ! -x "$target" || names+=("$(basename "$target" _fuzz)")
done
running=0
for name in "${names[@]}"; do
	test $running -lt "$(nproc)" || { wait -n; running=$((running - 1)); }
	fuzz "$name" &
	running=$((running + 1))
done
wait

rc=0
count=0
for name in "${names[@]}"; do
	count=$((count + 1))
	if test "$(cat "$build/corpus/$name.exit")" = 0; then
		echo "ok $count - $name, $seconds s"
		continue
	fi
	rc=1
	echo "not ok $count - $name: the input lies in $build/corpus"
	grep -E "^($name:|==|SUMMARY|    #|Base64)|ERROR|error:" \
		"$build/corpus/$name.log" | cut -c1-500 | head -40 | sed 's/^/# /'
done
echo "1..$count"
exit $rc
