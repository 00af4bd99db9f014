# SPDX-License-Identifier: BSD-3-Clause
"""
Makes rows of what ucx_pods.sh measured: python3 ucx_table.py FILE TO, where each line
of FILE is one figure of one round, and TO is a file as report.py writes it.
"""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))

import report  # noqa: E402


def main():
    with open(sys.argv[1]) as lines:
        figures = [json.loads(line) for line in lines]
    told = report.Report(sys.argv[2])
    keys = sorted({(r["what"], r["bytes"], r["unit"]) for r in figures},
                  key=lambda key: (key[0] != "latency", key[0], key[1]))
    for what, count, unit in keys:
        got = {}
        for r in figures:
            if (r["what"], r["bytes"]) == (what, count):
                got.setdefault(f"{r['arm']} {r['ucx']}", []).append(r["value"])
        told.row("ucx", "GPU memory", what, count, unit, got)


if __name__ == "__main__":
    main()
