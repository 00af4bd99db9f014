#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The documentation's site: `make site` fails where a link or a heading that it
# leads to is missing, or a page is in no list of docs/site/conf.py. Its Markdown,
# its plots, and what a browser makes of it.
. "${WEFT_SRC:?}/tests/lib/tap.sh" || exit 99
tools=$(bash "$WEFT_SRC/tests/tools/venv.sh" --list site)
test -n "$tools" ||
	tap_skip_all "no Sphinx in the cache (tests/tools/venv.sh site)"
command -v pandoc >/dev/null || tap_skip_all "needs pandoc"
tap_folder
site=$WEFT_BUILD/site
tap_equal "make site builds it, and says nothing" \
	"$(MAKEFLAGS="" make -s --no-print-directory -C "$WEFT_BUILD" site 2>&1
	echo "status $?")" "status 0"
tap_nothing "every page of the sources is a page of it" "$(
	cd "$WEFT_SRC" || exit
	for page in *.md docs/*.md docs/*/*.md man/*.[17].md; do
		test -e "$site/${page%.md}.html" || echo "$page"
	done)"
tap_nothing "each is beside it as Markdown, and in llms.txt, once" "$(
	cd "$site" || exit
	find . -name '*.html' -printf '%P\n' | grep -vE '^(index|search)\.html$' |
		while read -r page; do
			page=${page%.html}.md
			test -s "$page" &&
				test "$(grep -c "($page)" llms.txt)" = 1 ||
				echo "$page"
		done
	sed -n 's/^- \[.*\](\([^)]*\)).*/\1/p' llms.txt |
		while read -r page; do test -e "$page" || echo "$page"; done)"

# By another way than the one it is built by.
cat >"$tap_tmp/links.py" <<'EOF'
import html.parser, os, re, urllib.parse

class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        with open(path) as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id":
                self.ids.add(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)
            elif name == "src" or (tag, name) == ("link", "href"):
                self.loads.append(value)

pages = {os.path.join(folder, name): Page(os.path.join(folder, name))
         for folder, _, names in os.walk(".") for name in names
         if name.endswith(".html")}
for path, page in pages.items():
    for link in page.loads + page.links:
        url = urllib.parse.urlsplit(link)
        if url.scheme or url.netloc:
            if link in page.loads:
                print(path, "loads", link)
            continue
        target = os.path.normpath(os.path.join(
            os.path.dirname(path), urllib.parse.unquote(url.path))) \
            if url.path else os.path.normpath(path)
        if not os.path.exists(target):
            print(path, "leads to", link)
        elif url.fragment and "./" + target in pages and \
                url.fragment not in pages["./" + target].ids:
            print(path, "has no such heading:", link)
fences = re.compile(r"```.*?```|`[^`]*`", re.S)
for folder, _, names in os.walk("."):
    for name in names:
        if name.endswith(".md"):
            with open(os.path.join(folder, name)) as file:
                text = fences.sub("", file.read())
            for link in re.findall(r"\]\(([^)\s#]+)", text):
                if ":" not in link and not os.path.exists(
                        os.path.join(folder, urllib.parse.unquote(link))):
                    print(os.path.join(folder, name), "leads to", link)
print(len(pages) > 30 and sum(len(p.links) for p in pages.values()) > 1000
      and "many links")
EOF
tap_equal "nothing is loaded from elsewhere, and every link leads somewhere" \
	"$(cd "$site" && python3 "$tap_tmp/links.py" | sort -u | head -20)" \
	"many links"
tap_nothing "plots are drawn from their pages' tables (make update-plots)" "$(
	cd "$WEFT_SRC" || exit
	"$tools/bin/python" -B docs/plot.py "$tap_tmp" 2>&1
	for plot in "$tap_tmp"/*.svg; do
		cmp "$plot" "docs/performance/${plot##*/}" 2>&1
	done)"
tap_nothing "no style sheet or script loads anything from elsewhere" "$(
	cd "$site" && grep -rlE \
		'@import|url\(["'\'']?https?:|(fetch|import|src ?=)[ (]*["'\'']https?:' \
		--include='*.css' --include='*.js' .)"
for browser in chromium-headless-shell chromium google-chrome ""; do
	command -v "$browser" >/dev/null && break
done
words="invalid device context"
if test -n "$browser"; then
	tap_equal "no page is wider than a phone, or lacks a file; '$words' finds its table" \
		"$(python3 -B "$WEFT_SRC/tests/site/browser.py" "$site" "$browser" \
			"$words" 2>&1)" docs/containers.html
else
	tap_skip "in a browser" "there is no Chromium"
fi
tap_done
