#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What the page of counters costs a put and a message of 8 bytes: instructions (of
# Valgrind) and system calls (of strace) of both sides, with it and without.
#
#   bench/page.sh BUILD
#
# Needs valgrind and strace.  The difference of a long and a short run leaves out
# what a process does once.
set -eu
build=${1:?usage: bench/page.sh BUILD}
few=2000 many=12000
make -s -C "$build" bench/page
WEFT_RUN_DIR=$(mktemp -d)
export WEFT_RUN_DIR
trap 'rm -rf "$WEFT_RUN_DIR"' EXIT
log=$WEFT_RUN_DIR/log

instructions() # ARGUMENTS...
{
	valgrind --tool=callgrind --callgrind-out-file=/dev/null \
		"$build/bench/page" "$@" 2>&1 | sed -n 's/.*Collected : //p'
}

calls() # ARGUMENTS...
{
	strace -f -c -U calls,name -o "$log" "$build/bench/page" "$@"
	awk '$2 == "total" { print $1 }' "$log"
}

each() # WHAT ARGUMENTS...
{
	local what=$1 less more
	shift
	less=$("$what" "$1" "$2" "$3" "$few" "${@:4}")
	more=$("$what" "$1" "$2" "$3" "$many" "${@:4}")
	awk -v more="$more" -v less="$less" -v n=$((many - few)) \
		'BEGIN { printf "%.1f", (more - less) / n }'
}

echo "| | instructions without, with | system calls without, with |"
echo "|---|---|---|"
for device in tcp shm; do
	for what in put message; do
		for how in poll sleep; do
			printf '| weft_%s, %s, %s | %s, %s | %s, %s |\n' \
				"$device" "$what" "$how" \
				"$(each instructions "$device" "$what" "$how" off)" \
				"$(each instructions "$device" "$what" "$how")" \
				"$(each calls "$device" "$what" "$how" off)" \
				"$(each calls "$device" "$what" "$how")"
		done
	done
done
