#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One row of the list, beside the others.
if test -n "$WEFT_SANITIZED" && test -z "$WEFT_TEST_LONG"; then
	echo "1..0 # SKIP the sanitizers watch what is not the tests' own, both in the long run"
	exit 0
fi
exec "${WEFT_BUILD:?}/tests/conformance/conformance" -d "memory"
