#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Functions that one file has for others begin as docs/dev/glossary.md says of
# their room: a line of a profile tells where they are.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
. "$WEFT_SRC/tests/lib/rooms.sh"
cd "$WEFT_SRC" || exit 99

table=$(sed -n '/^| room | its public functions/,/^$/p' docs/dev/glossary.md)
tap_nothing "the rooms of the glossary's prefixes are there" \
	"$(sed -n 's/^| `\([^`]*\)`.*/\1/p' <<<"$table" | grep -vxF -- "$(rooms)")"
# what stands in for a function of libc or UCX has its name
others='main|__wrap_.*|getenv|fstat|uc[pst]_[a-z_]*'
while read -r room; do
	mapfile -t files < <(room_objects "$room")
	if test ${#files[@]} = 0; then
		tap_skip "$room" "not built"
		continue
	fi
	row=$(grep -F "| \`$room\` |" <<<"$table" ||
		grep -F '| others |' <<<"$table")
	mapfile -t prefixes < <(cut -d'|' -f3 <<<"$row" | grep -o '[a-z_]*_')
	tap_nothing "functions of $room begin with ${prefixes[*]}" "$(
		nm -P -g --defined-only "${files[@]}" |
			awk '$2 ~ /^[TW]$/ { print $1 }' | sort -u |
			grep -vxE "$others|($(IFS='|'; echo "${prefixes[*]}")).*")"
done < <(rooms)
tap_done
