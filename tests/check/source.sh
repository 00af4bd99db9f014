#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What no file of the project may contain.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
. "$WEFT_SRC/tests/lib/rooms.sh"

mapfile -t products < <(product_files)
mapfile -t code < <(project_files '*.c' '*.h')
mapfile -t scripts < <(project_files '*.sh' '*.py' '*.am' '*.ac' '*.m4' \
	quickstart .ci/run)
mapfile -t prose < <(project_files '*.md')
# this file has to spell the words it looks for
all=("${code[@]}" "${scripts[@]}" "${prose[@]}")
for i in "${!all[@]}"; do
	test "${all[i]}" = tests/check/source.sh && unset "all[i]"
done
cd "$WEFT_SRC" || exit 99

calls() # REGEX FILE...: calls of these functions, comments left out
{
	local names=$1
	shift
	awk -v call="(^|[^a-zA-Z0-9_>.])($names)[ ]*\\(" '
		{ gsub(/\/\*.*\*\//, "") }
		/^[ \t]*(\/\*|\*)/ { next }
		$0 ~ call { print FILENAME ":" FNR ":" $0 }' "$@"
}

tap_nothing "no number parser whose symbol depends on the glibc of the build" \
	"$(calls 'strto[a-z]+|atoi|atol|atoll|atof|v?[fs]?scanf' "${products[@]}")"
tap_nothing "no stat() of glibc 2.33 (statx is fine)" \
	"$(calls 'stat|fstat|lstat|fstatat|mknod|mknodat' "${products[@]}" |
		grep -v '^util/compat\.c:')"
tap_nothing "no function newer than glibc 2.28" \
	"$(calls 'gettid|strlcpy|strlcat|arc4random[a-z_]*|closefrom|close_range|epoll_pwait2|pidfd_[a-z_]+|reallocarray|pthread_cond_clockwait|thrd_[a-z]+|mtx_[a-z]+|tss_[a-z]+' \
		"${products[@]}")"
tap_nothing "no call that cannot bound what it writes" \
	"$(calls 'strcat|sprintf|vsprintf|gets|strtok|alloca|mktemp|tmpnam' \
		"${products[@]}")"
tap_nothing "no call that sleeps, forks a shell or ends the host's process" \
	"$(calls 'sleep|usleep|nanosleep|system|popen|exit|_exit|signal|sigaction' \
		"${products[@]}" | grep -v '^tools/')"
tap_nothing "no call with hidden state, none that waits for a name server" \
	"$(calls 'rand|random|srand|inet_ntoa|gethostbyname|localtime|gmtime' \
		"${products[@]}")"
tap_nothing "a setuid program's libraries and files are not its user's to name" \
	"$(calls 'getenv' "${products[@]}" |
		grep -vE '^(preload|ucx_tl|nccl_net|tools)/')"
tap_nothing "messages go through util/log.h" \
	"$(calls 'printf|puts|perror|fputs|fprintf' "${products[@]}" |
		grep -v -e '^tools/' -e '^stats/stats\.c:')"
tap_nothing "an error inside is -errno, to weft_fail() as well" \
	"$(grep -nHzoP 'weft_fail\(\s*(E[A-Z]|errno)' "${products[@]}" |
		tr '\0' '\n')"
tap_nothing "nothing is left to be done later" \
	"$(grep -nHwE 'TODO|FIXME|XXX|HACK|[Ss]tubs?|[Pp]laceholder|[Nn]ot implemented' \
		"${code[@]}" "${scripts[@]}" | grep -v '^tests/check/source\.sh:')"
# "make check TESTS=x" would build all of them
tap_nothing "test programs are built for the tests that need them" \
	"$(grep -nH '^check_PROGRAMS' "${scripts[@]}")"
tap_nothing "nothing names the machine it was written on" \
	"$(grep -nHE '/work/|/farm/|/var/tmp/|\.\./shared' "${all[@]}")"
# what is fetched comes from where this machine's apt and pip are configured to look
tap_nothing "no address of a server that files are fetched from" \
	"$(grep -nHiE '\b(https?|ftp|git|ssh|rsync)://[a-z0-9]|\b[a-z0-9-]+\.(org|com)\b' \
		"${all[@]}" tests/check/source.sh | grep -vwE 'docs\.nvidia\.com|deviceClassName: gpu\.nvidia\.com|www\.w3\.org/2000/svg')"
tap_nothing "every file says its licence" \
	"$(grep -L 'SPDX-License-Identifier: BSD-3-Clause' "${code[@]}" \
		"${scripts[@]}")"
# 80 is the aim; a comment beside a field may stand out a little, and the text
# of a message stays in one piece, so that it can be found
tap_nothing "C lines fit in 88 columns" \
	"$(for file in "${code[@]}"; do
		expand "$file" | awk -v file="$file" \
			'length > 88 && !/"[^"]*"[ })]*[,;]*$/ {
				print file ":" NR ": " length }'
	done)"
# a text of several lines, JSON and the help of settings may be in pieces
tap_nothing "a message stands on one line, so that it can be found" \
	"$(awk '
		function end_run() {
			gsub(/^(\\n)+|(\\n)+$/, "", text)
			if (pieces > 1 && text !~ /\\n|\\":/)
				print place
			pieces = 0
		}
		FNR == 1 { end_run() }
		{
			rest = $0
			sub(/^[ \t]*/, "", rest)
			while (match(rest, /"([^"\\]|\\.)*"/)) {
				if (!pieces || RSTART > 1) {
					end_run()
					place = FILENAME ":" FNR ": " $0
					text = ""
				}
				pieces++
				text = text substr(rest, RSTART + 1, RLENGTH - 2)
				rest = substr(rest, RSTART + RLENGTH)
				sub(/^[ \t]*/, "", rest)
			}
			if (rest != "")
				end_run()
		}
		END { end_run() }' \
		$(printf '%s\n' "${products[@]}" | grep -vx settings/settings.c))"
tap_nothing "no blanks at the end of a line" \
	"$(grep -nHE '[ 	]+$' "${code[@]}" "${scripts[@]}" | cut -c1-100)"
tap_nothing "structs and enums have no typedef of their own" \
	"$(grep -nHE '^typedef (struct|enum|union)' "${products[@]}" |
		grep -v '^ucx_tl/\|^nccl_net/')"
tap_nothing "no folder has more than 30 files" \
	"$(project_files '*/*' | grep -v '/corpus/' | sed 's|/[^/]*$||' |
		sort | uniq -c | awk '$1 > 30 { print $2 ": " $1 }')"
tap_nothing "no file of code has more than 600 lines" \
	"$(awk 'FNR == 601 { print FILENAME }' "${code[@]}" \
		$(project_files '*.sh' '*.py'))"
tap_done
