#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The documentation agrees with itself, with the sources and with what was
# measured.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
. "$WEFT_SRC/tests/lib/rooms.sh"
. "$WEFT_SRC/tests/lib/ucx_source.sh"
cd "$WEFT_SRC" || exit 99
tap_folder
mapfile -t pages < <(project_files '*.md' | grep -v '^man/')
mapfile -t pictures < <(project_files 'docs/*.pic')
mapfile -t sources < <(product_files | grep -v '^tools/')

# A heading's anchor, as forges make it.
anchors() # FILE
{
	sed -n 's/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' |
		sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

tap_nothing "every link leads to a file, and to a heading in it" "$(
	for page in "${pages[@]}"; do
		grep -o '](\([^)]*\))' "$page" | tr -d ']()' | sort -u |
			while read -r link; do
				file=${link%%#*}
				file=${file:+$(dirname "$page")/$file}
				file=${file:-$page}
				test -e "$file" || echo "$page: $link"
				case $link in
				*"#"*)	anchors "$file" | grep -qx -- "${link#*#}" ||
						echo "$page: $link has no such heading" ;;
				esac
			done
	done)"

tap_nothing "docs/README.md has every page" "$(
	for page in "${pages[@]}"; do
		case $page in
		docs/README.md | docs/dev/* | docs/upstream/*) ;;
		docs/performance/README.md)
			grep -qF "(performance/README.md)" docs/README.md ||
				echo "$page" ;;
		docs/performance/*)
			grep -qF "(${page#docs/performance/})" \
				docs/performance/README.md || echo "$page" ;;
		docs/*)	grep -qF "(${page#docs/})" docs/README.md || echo "$page" ;;
		esac
	done)"

tap_nothing "the figures of the pages are those of docs/performance/results" "$(
	PYTHONDONTWRITEBYTECODE=1 python3 docs/measured.py --check 2>&1)"

# The newest UCX is WEFT_UCX_MINOR_MAX; others leave it out.
newest=1.$(ucx_minor_max)
tap_equal "docs/ucx.md names the newest UCX that weft knows" \
	"$(grep -c "1\.13 to ${newest/./\\.})" docs/ucx.md)" 1
tap_nothing "no other page, comment or message has to be changed for a newer UCX" \
	"$(grep -nE "to ${newest/./\\.}\b|UCX_FORCE=(1\.)?${newest#*.}\b" \
		"${pages[@]}" man/*.md "${sources[@]}" quickstart m4/*.m4 |
		grep -vE '^(docs/ucx|NEWS)\.md:')"

# Messages that troubleshooting.md quotes, as patterns: the pieces between the dots
# are in one string of the sources, in that order.
mapfile -t quoted < <({
	grep '^###' docs/troubleshooting.md |
		grep -o '`\(NET/\)\?weft: [^`]*`' | tr -d '`' | sed 's/^[^ ]* //'
	sed -n '/^| \(reason\|message\) /,/^$/s/^| \(`.*`\) |.*/\1/p' \
		docs/troubleshooting.md | grep -o '`[^`]*`' | tr -d '`'
} | sed 's/[][\.*^$]/\\&/g; s/\(\\\.\)\{3\}/[^"]*/g
	# a cause may be appended by strerror()
	s/: Address already in use$//')
strings=$(cat "${sources[@]}" | tr '\n' ' ' | sed 's/"[ \t]*"//g')
tap_nothing "messages that troubleshooting.md explains are weft's" "$(
	tr '"' '\n' <<<"$strings" >"$tap_tmp/strings"
	for pattern in "${quoted[@]}"; do
		grep -q -- "$pattern" "$tap_tmp/strings" || echo "$pattern"
	done)"
# A message asks for something with a verb behind a mark: "; raise the limit".
asks='[;:(,]( or| see)?|\bor|\band'
verbs='add|allow|give|install|leave|mount|name|open|raise|remove|set|start|unset|widen'
tap_nothing "messages that ask for something are in troubleshooting.md" "$(
	grep -oE 'weft_(fail|error|warn|warn_once)\([^";]*"[^"]*' <<<"$strings" |
		sed 's/^[^"]*"//' | grep -E "($asks) ($verbs)\b" |
		grep -vf <(printf '%s\n' "${quoted[@]}"))"

tap_nothing "the section of each text of others has that text" "$(
	sed -n '/^| text /,/^$/s/^| `\([^`]*\)`.*(#\([^)]*\)) |$/\1\t\2/p' \
		docs/troubleshooting.md | while IFS=$'\t' read -r words anchor; do
		line=$(anchors docs/troubleshooting.md | grep -nx -- "$anchor" |
			cut -d: -f1)
		awk -v n="${line:-0}" '/^##* / { i++ } i == n' \
			docs/troubleshooting.md | tr '\n' ' ' |
			grep -qF -- "$words" || echo "$words"
	done)"

# A function, a constant or a file that was renamed is renamed there, too.
tap_nothing "what docs/dev names of the sources is there" "$(
	for page in docs/dev/{add-a-device,add-a-setting,architecture,threads,wire}.md; do
		grep -o '`[a-z_0-9]*()`' "$page" | tr -d '`()' | sort -u |
			while read -r name; do
				grep -qE -- "\b$name\(|\(\*$name\)\(" \
					"${sources[@]}" || echo "$page: $name()"
			done
		grep -o '`[A-Z]*_[A-Z_0-9]*`' "$page" | tr -d '`' | sort -u |
			while read -r name; do
				grep -qw -- "$name" "${sources[@]}" \
					docs/settings.md || echo "$page: $name"
			done
		grep -o '`[a-z_0-9/]*\.\(c\|h\|sh\)`' "$page" | tr -d '`' |
			sort -u | while read -r name; do
				project_files "*$name" | grep -qE "(^|/)$name\$" ||
					echo "$page: $name"
			done
	done)"

if command -v python3 >/dev/null; then
	tap_nothing "every command block says whether it is run" \
		"$(python3 tests/tools/commands.py "${pages[@]}")"
	tap_equal "docs/not-run.md has those that are not (make update-not-run)" \
		"$(sed -n '/^| where/,$p' docs/not-run.md)" \
		"$(python3 tests/tools/commands.py --not-run "${pages[@]}")"
	for picture in "${pictures[@]}"; do
		tap_equal "${picture%.pic}.svg is drawn from it (make update-pictures)" \
			"$(python3 docs/picture.py "$picture" |
				diff - "${picture%.pic}.svg" 2>&1)" ""
	done
else
	tap_skip "marks of command blocks" "needs python3"
	tap_skip "pictures are drawn from their descriptions" "needs python3"
fi
tap_done
