#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Rooms include only those below them, as docs/dev/rooms.pic draws it, and every
# room is drawn there. tests and bench may include any.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
. "$WEFT_SRC/tests/lib/rooms.sh"
cd "$WEFT_SRC" || exit 99
picture=docs/dev/rooms.pic
mapfile -t code < <(project_files '*.[ch]')

boxes=$(awk '$1 == "box" { print $2 }' $picture)
tap_nothing "every room is a box in $picture" \
	"$(rooms | grep -vxF -- "$boxes")"
tap_nothing "every box there is a folder or a file of the tree" \
	"$(for box in $boxes; do test -e "$box" || echo "$box"; done)"

includes() # FILE...: each file, and what it includes by its path
{
	awk '/^[ \t]*#[ \t]*include[ \t]*"/ {
		split($0, part, "\"")
		print FILENAME, part[2] }' "$@"
}

tap_nothing "rooms include only those below them" "$(
	mapfile -t products < <(product_files)
	awk '
		function above(path) {
			return sub(/\/[^\/]*$/, "", path) ? path : ""
		}
		function room_of(path) {
			do
				path = above(path)
			while (path && !(path in room))
			return path
		}
		# what a room may include, by its arrows and those around it
		function visit(name, to, i, way) {
			if ((name, to) in may)
				return
			may[name, to]
			for (; to; to = above(to))
				for (i = split(next_of[to], way, " "); i; i--)
					visit(name, way[i])
		}
		FILENAME == "-" { room[$1]; next }
		# a folder of rooms, too
		$1 == "box" && $2 !~ /\.[ch]$/ { room[$2] }
		$1 == "box" && $2 ~ /\.[ch]$/ { stands[$2] = above($2) }
		$1 == "arrow" {
			from = $2 in stands ? stands[$2] : $2
			to = $3 in stands ? stands[$3] : $3
			next_of[from] = next_of[from] " " to
		}
		FILENAME ~ /\.pic$/ { next }
		!ready++ {
			for (name in room) {
				visit(name, name)
				if (above(name))
					may[name, above(name)]
			}
		}
		# of the folder around it, if that calls it, types alone
		function types_only(from, to) {
			return to == above(from) && (to, from) in may
		}
		function has_code(header, line) {
			sub(/h$/, "c", header)
			return (getline line < header) >= 0
		}
		$2 == "config.h" { next }
		{
			from = room_of($1)
			to = room_of($2)
		}
		!((from, to) in may) ||
		types_only(from, to) && has_code($2) {
			print $1 " includes \"" $2 "\""
		}' - $picture <(includes "${products[@]}") < <(rooms))"
tap_nothing "includes are written from the root" \
	"$(includes "${code[@]}" | awk '$2 != "config.h" && $2 !~ /\//')"
tap_done
