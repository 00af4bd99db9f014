#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds the documentation's site, which needs no network to be read.
#
#   docs/site/build.sh FOLDER
set -eu
out=$1
cd "$(dirname "$0")/../.."
tools=$(bash tests/tools/venv.sh site)
pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
cp -r README.md NEWS.md SECURITY.md CONTRIBUTING.md LICENSE docs "$pages"
chmod -R u+w "$pages"
mkdir "$pages/man"
for page in man/*.[17].md; do
	name=$(basename "$page" .md)
	title="${name%.*}(${name##*.})"
	parts=$page
	test "$name" != weft.7 || parts="$page docs/settings.md man/weft.7.end.md"
	{
		printf '%s\n%s\n\n' "$title" "${title//?/#}"
		# shellcheck disable=SC2086 # a list
		pandoc -f markdown-smart -t rst $parts |
			sed 's/\*\*\([a-z_-]*\)\*\*\\ (\([17]\))/:doc:`\1(\2) <\1.\2>`\\ /g'
	} >"$pages/man/$name.rst"
done
rm -rf "$out"
"$tools/bin/python" -m sphinx -q -W --keep-going -j 2 -c docs/site \
	-d "$pages/doctrees" "$pages" "$out"
cp "$out/README.html" "$out/index.html"

# The same as Markdown, which Sphinx would take for pages of their own.
for page in man/*.[17].md; do
	name=$(basename "$page" .md)
	parts=$page
	test "$name" != weft.7 || parts="$page docs/settings.md man/weft.7.end.md"
	# shellcheck disable=SC2086 # a list
	{
		printf '# %s\n\n' "${name%.*}(${name##*.})"
		sed '1,/^---$/d' $parts
	} >"$pages/man/$name.md"
done
"$tools/bin/python" docs/site/llms.py "$pages" "$out"
