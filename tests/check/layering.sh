#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Rooms look one way only: util <- bootstrap <- devices <- {ucx_tl, nccl_net}
# <- tools, tests. A device knows devices/*.h and devices/engine, but no other
# device.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99

may_include() # ROOM: the rooms it may look into
{
	case $1 in
	util)			echo "util" ;;
	bootstrap)		echo "util bootstrap" ;;
	devices)		echo "util bootstrap devices" ;;
	devices/engine)		echo "util bootstrap devices $1" ;;
	devices/*)		echo "util bootstrap devices devices/engine $1" ;;
	ucx_tl | nccl_net)	echo "util bootstrap devices $1" ;;
	tools)			echo "util bootstrap devices ucx_tl nccl_net $1" ;;
	tests | bench)		echo "any" ;;
	esac
}

room_of() # PATH
{
	case $1 in
	devices/*/*)	echo "${1%/*}" ;;
	*)		echo "${1%%/*}" ;;
	esac
}

found=""
unrooted=""
while read -r file; do
	room=$(room_of "$file")
	allowed=$(may_include "$room")
	while read -r header; do
		case $header in
		config.h) continue ;;
		*/*) ;;
		*)	unrooted+="$file: \"$header\""$'\n'
			continue ;;
		esac
		test "$allowed" = any && continue
		case " $allowed " in
		*" $(room_of "$header") "*) ;;
		*) found+="$file ($room) includes \"$header\""$'\n' ;;
		esac
	done < <(sed -n 's/^[ \t]*#[ \t]*include[ \t]*"\([^"]*\)".*/\1/p' \
		"$WEFT_SRC/$file")
done < <(project_files 'util/*.[ch]' 'bootstrap/*.[ch]' 'devices/*.[ch]' \
	'ucx_tl/*.[ch]' 'nccl_net/*.[ch]' 'tools/*.[ch]' 'bench/*.[ch]' \
	'tests/*.[ch]')

tap_nothing "rooms include only those below them" "$found"
tap_nothing "includes are written from the root" "$unrooted"
tap_done
