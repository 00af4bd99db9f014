#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The manual pages agree with the program.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
weft=$WEFT_BUILD/tools/weft

tap_equal "docs/settings.md agrees with weft info settings (make update-settings)" \
	"$(diff "$WEFT_SRC/docs/settings.md" <(
		env -i "$weft" info settings | awk -f "$WEFT_SRC/man/settings.awk") 2>&1)" ""

# A page and its command have the same options.
for command in run info check status stats; do
	page=$(grep -o '^\*\*-[^:]*\|\\--[a-z-]*' "$WEFT_SRC/man/weft-$command.1.md" |
		grep -o -- '--[a-z-]*' | sort -u)
	told=$("$weft" $command --help | grep -o -- '--[a-z-]*' | sort -u)
	tap_equal "weft-$command(1) lists the options of weft $command" \
		"$(echo $page)" "$(echo $told)"
done

# Every key of a line of counters.
tap_nothing "weft(7) explains every key that WEFT_STATS writes" "$(
	cd "$WEFT_SRC" || exit
	{
		sed -n 's/^\tX(\([a-z_]*\), .*/\1/p' stats/stats.h
		grep -o '\\"[a-z]*\\":' stats/stats.c | tr -dc 'a-z\n'
	} | while read -r key; do
		grep -q "^\*\*.*\b$key\*\*" man/weft.7.md || echo "$key"
	done
)"

if command -v groff >/dev/null && test -e "$WEFT_BUILD/man/weft.7"; then
	tap_nothing "troff has no warning for any page" "$(
		cd "$WEFT_BUILD/man" || exit
		for page in *.[17]; do
			groff -man -Tutf8 -ww -z "$page" 2>&1
		done
	)"
else
	tap_skip "troff has no warning for any page" \
		"no groff, or no pages were made (pandoc)"
fi

tap_nothing "pages that are referred to exist" "$(
	cd "$WEFT_SRC/man" || exit
	grep -oh '\*\*[a-z_-]*\*\*([17])' ./*.md | tr -d '*()' |
		sed 's/\([17]\)$/.\1.md/' | sort -u | while read -r page; do
		test -f "$page" || echo "$page"
	done
)"
tap_done
