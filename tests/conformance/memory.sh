#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One row of the list, beside the others.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_skip_sanitized "the sanitizers watch what is not the tests' own, both in the long run"
exec "${WEFT_BUILD:?}/tests/conformance/conformance" -d "memory"
