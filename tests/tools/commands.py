#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""
The command blocks of the documentation, and whether they are run: by the marks
that docs/dev/add-a-test.md explains.

usage: commands.py [--not-run] PAGE...

Prints what is wrong with the marks of these pages; with --not-run the table of
docs/not-run.md.
"""
import collections
import os
import re
import sys

MARK = re.compile(r"<!-- (run(?:, long| together)?|run by (\S+)|"
                  r"not run: (.*)) -->$")
FENCE = re.compile(r" *(```+|~~~+) *(\S*)")
COMMANDS = ("", "sh", "bash", "shell", "console")

Block = collections.namedtuple("Block", "page line heading mark test reason "
                                        "lines")


def commands(lines):
    """The commands of @lines, without prompts and remarks."""
    told = (re.sub(r"(^|\s+)# .*", "", line) for line in lines)
    return [re.sub(r"^\s*\$ ", "", line).strip() for line in told
            if line.strip()]


def blocks(page):
    """The command blocks of @page, and marks that stand above none."""
    with open(page) as file:
        lines = file.read().split("\n")
    heading, mark, at = "", None, 0
    while at < len(lines):
        line, start = lines[at], at
        fence = FENCE.match(line)
        before = lines[at - 1].strip() if at else ""
        if fence:
            at += 1
            while at < len(lines) and not re.match(
                    " *" + fence[1] + r"\s*$", lines[at]):
                at += 1
            code = lines[start + 1:at]
            at += 1
            if fence[2] not in COMMANDS:
                code = None
        elif line.startswith("    ") and (not before or MARK.match(before)):
            while at < len(lines) and (lines[at].startswith("    ")
                                       or not lines[at].strip()):
                at += 1
            code = lines[start:at]
        else:
            at += 1
            code = None
            if line.startswith("#"):
                heading = line.lstrip("# ")
            if not line.strip():
                continue
        said = MARK.match(mark) if mark else None
        if code is not None or said:
            yield Block(page, start + 1, heading, said and said[1],
                        said and said[2], said and said[3],
                        [code_line[4:] if not fence else code_line
                         for code_line in code] if code is not None else None)
        mark = line if line.startswith("<!--") else None


def faults(page):
    for block in blocks(page):
        where = f"{page}:{block.line}"
        if block.lines is None:
            yield f"{where}: no command block follows the mark above"
        elif not block.mark:
            yield (f"{where}: is it run? A mark is missing above it "
                   f"(docs/dev/add-a-test.md)")
        elif block.test and not os.path.isfile(block.test):
            yield f"{where}: there is no {block.test}"
        elif block.test:
            with open(block.test) as file:
                text = file.read()
            if os.path.basename(page) in text:
                continue
            for line in commands(block.lines):
                if line not in text:
                    yield f"{where}: {block.test} does not run '{line}'"


def anchor(heading):
    """As forges make it."""
    return re.sub("[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-")


# Pages for those who change weft are not installed: no link leads to them.
NOT_INSTALLED = ("CONTRIBUTING.md", "docs/dev/", "docs/upstream/")


def not_run(pages):
    yield "| where | command | why not |"
    yield "|---|---|---|"
    for page in sorted(pages):
        name = page.removeprefix("docs/")
        link = os.path.relpath(page, "docs")
        for block in blocks(page):
            if not block.reason:
                continue
            told = "; ".join(commands(block.lines)).replace("|", "\\|")
            if len(told) > 50:
                told = told[:46] + " ..."
            where = (f"`{page}`" if page.startswith(NOT_INSTALLED) else
                     f"[{name}]({link}#{anchor(block.heading)})")
            yield f"| {where} | `{told}` | {block.reason} |"


def main():
    pages = sys.argv[1:]
    if pages[:1] == ["--not-run"]:
        print("\n".join(not_run(pages[1:])))
        return
    for page in pages:
        for fault in faults(page):
            print(fault)


if __name__ == "__main__":
    main()
