#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# No file has a phrase that docs/dev/glossary.md rules out, nor a file's name.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
cd "$WEFT_SRC" || exit 99
glossary=docs/dev/glossary.md
mapfile -t files < <(project_files '*' | grep -vxF $glossary |
	grep -vE '\.(svg|png|cubin|bin)$|^tests/fuzz/corpus/')

phrases=$(sed -n '/^| not | but/,/^$/p' $glossary | cut -d'|' -f2 |
	grep -o '`[^`]*`' | tr -d '`')
pattern=$(sed -E 's/^is /(is|are|was|were|be|been|being) /
	s/$/s?/' <<<"$phrases" | paste -sd'|')
test "$(wc -l <<<"$phrases")" -ge 10 ||
	tap_not_ok "the glossary has phrases" "$phrases"

# A phrase may go on in the next line, behind that one's comment sign.
tap_nothing "no file has a phrase that the glossary rules out" "$(
	awk -v pattern="(^|[^a-z])($pattern)([^a-z]|\$)" '
		FNR == 1 { last = "" }
		{
			line = tolower($0)
			sub(/^[ \t]*([*#>]+|\/[\/*]+)?[ \t]*/, "", line)
			if (line ~ pattern)
				print FILENAME ":" FNR ": " $0
			else if (last !~ pattern && last " " line ~ pattern)
				print FILENAME ":" FNR - 1 ": " saved " / " $0
			last = line
			saved = $0
		}' "${files[@]}" | cut -c1-160)"
tap_nothing "no file's name has one" \
	"$(printf '%s\n' "${files[@]}" | grep -iE "$pattern")"
tap_done
