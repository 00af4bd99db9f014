# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# TAP for shell tests: source it, report with these, end with tap_done.
tap_count=0
tap_failed=0

tap_ok() # NAME
{
	echo "ok $((++tap_count)) - $1"
}

tap_not_ok() # NAME [TEXT...]: the text says what was seen
{
	echo "not ok $((++tap_count)) - $1"
	tap_failed=1
	shift
	if test $# -gt 0; then
		printf '%s\n' "$*" | sed 's/^/#   /'
	fi
}

tap_skip() # NAME REASON
{
	echo "ok $((++tap_count)) - $1 # SKIP $2"
}

# Passes if FOUND is empty; else that is the text of the failure.
tap_nothing() # NAME FOUND
{
	if test -z "$2"; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "$2"
	fi
}

tap_equal() # NAME SEEN WANTED
{
	if test "$2" = "$3"; then
		tap_ok "$1"
	else
		tap_not_ok "$1" "seen:   $2" $'\n'"wanted: $3"
	fi
}

tap_skip_all() # REASON
{
	echo "1..0 # SKIP $1"
	exit 0
}

# Under sanitizers what takes long is left to the long run.
tap_skip_sanitized() # REASON
{
	test -z "$WEFT_SANITIZED" || test -n "$WEFT_TEST_LONG" ||
		tap_skip_all "$1"
}

tap_done()
{
	echo "1..$tap_count"
	exit $tap_failed
}

# A folder of this test's own, gone when it ends.
tap_folder()
{
	tap_tmp=$(mktemp -d) || exit 99
	trap 'rm -rf "$tap_tmp"' EXIT
}

# The files of the project: git's list, or that of a release tarball.
# Other files are ignored.
project_files() # PATTERN...
{
	cd "$WEFT_SRC" || exit 99
	if test "$(git rev-parse --show-toplevel 2>/dev/null)" = "$PWD"; then
		git ls-files -- "$@" | while read -r file; do
			test -e "$file" && echo "$file"
		done
	else
		local pattern
		MAKEFLAGS="" make -s -C "$WEFT_BUILD" print-distfiles |
			grep -vE '^(build-aux/|aclocal\.m4$|m4/l|config\.h)' |
			while read -r file; do
				for pattern in "$@"; do
					# shellcheck disable=SC2254 # a pattern
					case $file in
					$pattern) echo "$file" ;;
					esac
				done
			done
	fi | sort -u
}

# The folder of a product in the build tree, or nothing.
product() # FILE NAME
{
	local file
	for file in "$WEFT_BUILD"/*/.libs/"$1"; do
		test -f "$file" && echo "$file"
	done
}
