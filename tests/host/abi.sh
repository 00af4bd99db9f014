#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Compares weft's declarations of UCX's ABI with UCX's own, for each source tree
# (a release's tarball or a checkout) that WEFT_UCX_SOURCE names.
: "${WEFT_SRC:=$(cd "$(dirname "$0")/../.." && pwd)}"
# shellcheck source=tests/lib/tap.sh
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99

test -n "${WEFT_UCX_SOURCE-}" ||
	tap_skip_all "WEFT_UCX_SOURCE names no source tree of UCX"

for tree in $WEFT_UCX_SOURCE; do
	tap_nothing "$(basename "$tree"): the same layout" \
		"$(bash "$WEFT_SRC/tests/tools/ucx-facts.sh" --compare "$tree" 2>&1)"
done
tap_done
