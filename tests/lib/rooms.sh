# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The rooms: the folders of the product's C files. Source it after tap.sh.

product_files() # the product's C files and headers
{
	project_files '*.[ch]' | grep -vE '^(tests|bench|examples)/'
}

# A folder of headers alone belongs to the room above it.
rooms()
{
	product_files | sed -n 's|/[^/]*\.c$||p' | sort -u
}

room_objects() # ROOM: one build of each of its files, none of a former source
{
	local object name
	find "$WEFT_BUILD/$1/.libs" "$WEFT_BUILD/$1" -maxdepth 1 -name '*.o' \
		2>/dev/null | awk -F/ '!seen[$NF]++' |
		while read -r object; do
			name=${object##*/}
			name=${name%.o}
			test -e "$WEFT_SRC/$1/${name#*-}.c" && echo "$object"
		done
}
