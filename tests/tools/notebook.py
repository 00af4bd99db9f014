# SPDX-License-Identifier: BSD-3-Clause
"""
Prints the Jupyter notebook (nbformat 4.5) of a script whose cells begin with
"# %%" or "# %% [markdown]".  What stands before the first is left out.

usage: notebook.py SCRIPT
"""
import json
import re
import sys


def cells(text):
    parts = re.split(r"^# %%(.*)\n", text, flags=re.M)[1:]
    for number, (kind, body) in enumerate(zip(parts[::2], parts[1::2])):
        lines = body.strip("\n").split("\n")
        cell = {"cell_type": "code", "execution_count": None,
                "id": f"cell-{number}", "metadata": {}, "outputs": []}
        if kind.strip() == "[markdown]":
            lines = [re.sub("^# ?", "", line) for line in lines]
            cell = {"cell_type": "markdown", "id": f"cell-{number}",
                    "metadata": {}}
        cell["source"] = [line + "\n" for line in lines[:-1]] + lines[-1:]
        yield cell


def main():
    with open(sys.argv[1]) as file:
        notebook = {
            "cells": list(cells(file.read())),
            "metadata": {
                "kernelspec": {"display_name": "Python 3",
                               "language": "python", "name": "python3"},
                "language_info": {"name": "python"}},
            "nbformat": 4, "nbformat_minor": 5}
    print(json.dumps(notebook, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
