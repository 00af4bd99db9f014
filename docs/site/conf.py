# SPDX-License-Identifier: BSD-3-Clause
"""
The site that `make site` builds of the documentation, by Sphinx: the same
Markdown as a forge shows, in this order. A page that is in no list, and a link
that leads nowhere, fail the build.
"""
project = "weft"
root_doc = "README"
extensions = ["myst_parser"]
myst_heading_anchors = 4
nitpicky = True
# a block without a kind is of commands
highlight_language = "sh"
pygments_dark_style = "monokai"
html_theme = "furo"
html_title = "weft"
html_copy_source = False
html_use_index = False
# --option stays as it is
smartquotes = False
html_show_sphinx = False
html_show_copyright = False

PAGES = {
    "Start": ["docs/README", "docs/install", "docs/concepts"],
    "Your case": ["docs/dask", "docs/ucx", "docs/gpu", "docs/nccl",
                  "docs/containers", "docs/infiniband"],
    "Recipes": ["docs/recipes/*"],
    "Look up": ["docs/settings", "docs/troubleshooting", "SECURITY", "NEWS"],
    "What was measured": ["docs/performance/README", "docs/performance/*",
                          "docs/not-run"],
    "Manual pages": ["man/*"],
    "Working on weft": ["CONTRIBUTING", "docs/dev/architecture", "docs/dev/*",
                        "docs/upstream/*"],
}


def add_pages(_, name, source):
    if name == root_doc:
        for caption, pages in PAGES.items():
            source[0] += "\n".join(["\n```{toctree}", ":hidden:", ":glob:",
                                    f":caption: {caption}", "", *pages,
                                    "```\n"])


def setup(app):
    app.connect("source-read", add_pages)
