# SPDX-License-Identifier: BSD-3-Clause
"""
Puts the pages into the site as Markdown, too, each beside its HTML, and llms.txt,
which lists them for programs that read documentation.

    llms.py PAGES SITE
"""
import pathlib
import re
import shutil
import sys

sys.dont_write_bytecode = True
import conf  # noqa: E402: beside this file

pages, site = map(pathlib.Path, sys.argv[1:])
LINK = re.compile(r"\]\(([^)\s#]+)")


def plain(text):
    """Markdown without its marks, on one line."""
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"[*`\\]", "", text).split())


def first_sentence(text):
    for part in re.split(r"\n\s*\n", text):
        if not part.startswith(("#", "|", "<", "!", "-", "```", "    ")):
            sentence = re.match(r".*?\.(?= |$)", plain(part))
            return ": " + (sentence[0] if sentence else plain(part))
    return ""


def put(name):
    """Copies the page and what it leads to; its title and first sentence."""
    source = pages / f"{name}.md"
    text = source.read_text()
    for link in ["", *LINK.findall(text)]:
        path = (source.parent / link if link else source).resolve()
        target = site / path.relative_to(pages.resolve()) \
            if pages.resolve() in path.parents else None
        if target and path.is_file() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    title, _, rest = text.partition("\n")
    return plain(title.lstrip("# ")), first_sentence(rest.strip())


title, sentence = put(conf.root_doc)
listed = {conf.root_doc}
lines = [f"# {conf.project}", "", f"> {sentence[2:]}", "",
         f"- [{title}]({conf.root_doc}.md)"]
for caption, patterns in conf.PAGES.items():
    lines += ["", f"## {caption}", ""]
    for pattern in patterns:
        for path in sorted(pages.glob(f"{pattern}.md")):
            name = str(path.relative_to(pages).with_suffix(""))
            if name not in listed:
                listed.add(name)
                title, sentence = put(name)
                lines.append(f"- [{title}]({name}.md){sentence}")
(site / "llms.txt").write_text("\n".join(lines) + "\n")
