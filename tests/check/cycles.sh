#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Files of a room call each other in one direction: no more than three of them
# form a cycle. Calls are read from the object files, where a name that one
# file leaves undefined is a function of another.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
. "$WEFT_SRC/tests/lib/rooms.sh"

limit=3

largest() # OBJECT...: the size of the largest cycle, and the files in it
{
	nm -A -P -g "$@" | awk '
		{
			file = $1
			sub(/(\[.*\])?:$/, "", file)
			sub(/.*\//, "", file)
			sub(/\.o$/, "", file)
			if (!(file in number)) {
				number[file] = n++
				name[n - 1] = file
			}
			if ($3 == "T" || $3 == "W")
				home[$2] = number[file]
			else if ($3 == "U")
				wants[number[file], $2]
		}
		END {
			for (w in wants) {
				split(w, part, SUBSEP)
				if (part[2] in home)
					calls[part[1], home[part[2]]]
			}
			# who reaches whom over any number of files
			for (k = 0; k < n; k++)
				for (i = 0; i < n; i++)
					if ((i, k) in calls)
						for (j = 0; j < n; j++)
							if ((k, j) in calls)
								calls[i, j]
			for (i = 0; i < n; i++) {
				size = 1
				files = name[i]
				for (j = 0; j < n; j++)
					if (j != i && (i, j) in calls && (j, i) in calls) {
						size++
						files = files " " name[j]
					}
				if (size > most) {
					most = size
					which = files
				}
			}
			print most + 0, which
		}'
}

while read -r room; do
	mapfile -t files < <(room_objects "$room")
	if test ${#files[@]} = 0; then
		tap_skip "$room" "not built"
		continue
	fi
	read -r size cycle < <(largest "${files[@]}")
	name="$room: no more than $limit files call each other in a cycle"
	if test "$size" -gt $limit; then
		tap_not_ok "$name" "these $size do: $cycle"
	else
		tap_ok "$name"
	fi
done < <(rooms)
tap_done
