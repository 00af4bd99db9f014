#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# One row of the list, beside the others.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tap_skip_sanitized "the sanitizers watch tcp over IPv4, both in the long run"
exec "${WEFT_BUILD:?}/tests/conformance/conformance" -d "tcp over IPv6"
