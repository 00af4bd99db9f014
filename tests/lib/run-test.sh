#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Runs one compiled test. Criterion passes a test whose process leaks or whose
# child dies of a sanitizer after the verdict; here any find is a failure.
reports=$(mktemp -d) || exit 99
trap 'rm -rf "$reports"' EXIT
if test -n "$WEFT_SANITIZED"; then
	ASAN_OPTIONS="log_path=$reports/asan:detect_leaks=1:$ASAN_OPTIONS"
	UBSAN_OPTIONS="log_path=$reports/ubsan:print_stacktrace=1:$UBSAN_OPTIONS"
	TSAN_OPTIONS="log_path=$reports/tsan:exitcode=66:$TSAN_OPTIONS"
	export ASAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS
fi
"$@"
rc=$?
for report in "$reports"/*; do
	test -s "$report" || continue
	# not the notes that LeakSanitizer leaves there without a find
	grep -qE 'ERROR: |WARNING: Thread|runtime error' "$report" || continue
	sed 's/^/# /' "$report"
	rc=1
done
exit $rc
