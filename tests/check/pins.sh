#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Every pinned Python package exists for the distributions' own Python: that of
# Debian 12 and of Ubuntu 24.04.  What was found once is not asked for again.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
pip=(timeout 120 python3 -m pip --disable-pip-version-check --retries 0 --timeout 15)
"${pip[@]}" index versions pip >/dev/null 2>&1 ||
	tap_skip_all "PyPI cannot be reached, or there is no pip"
tap_folder
found=${WEFT_CACHE:-$HOME/.cache/weft}/pins
mkdir -p "$found" || exit 99
for list in "$WEFT_SRC"/tests/*/requirements.txt; do
	for version in 3.11.2 3.12.3; do
		name="${list#"$WEFT_SRC"/} fits Python $version"
		stamp=$found/$(cat "$list" - <<<"$version" | sha256sum | cut -c 1-40)
		if test -e "$stamp"; then
			tap_ok "$name"
			continue
		fi
		seen=$("${pip[@]}" install --quiet --dry-run --ignore-installed \
			--no-deps --only-binary :all: \
			--python-version $version --target "$tap_tmp/x" \
			-r "$list" 2>&1) && touch "$stamp"
		# "none": that is the network
		tap_nothing "$name" "$(
			grep '^ERROR: Could not find a version' <<<"$seen" |
				grep -v 'from versions: none' | cut -c1-100)"
	done
done
tap_done
