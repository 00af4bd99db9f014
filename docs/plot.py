#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws the plots of docs/performance: plot.py [FOLDER]

Each is drawn from the tables of the page of the same name, so that no figure stands in
two places. FOLDER (default: docs/performance)
is where PAGE.svg goes. `make update-plots` runs this with the matplotlib of
tests/site/requirements.txt, with which the same tables always give the same
bytes: tests/check/site.sh compares them.
"""
import os
import re
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "bench"))

from report import size_text  # noqa: E402

UNITS = {"ms": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
TICKS = (8, 1 << 10, 64 << 10, 1 << 20, 64 << 20, 1 << 30)
WEFT, ALSO_WEFT, BEST, PLAIN, TUNED, OTHER = (
    {"color": "#c4570a", "marker": "o", "linewidth": 2.5, "zorder": 5},
    {"color": "#e8a33d", "marker": "s"},
    {"color": "#24292f", "marker": "x", "linestyle": "--"},
    {"color": "#2f6fb0", "marker": "v"},
    {"color": "#7fb2dd", "marker": "^"},
    {"color": "#9a8fc7", "marker": "d"},
)

# Each plot has two panels: a title, a scale, and lines: a heading of the page, how
# the rows begin in the first table under it that has the column, the column.
CUDA = "Tagged messages of CUDA memory"
GPUS = "Memory of a GPU"
HIDDEN, LOADED = "Hidden GPUs", "Latency under load"
TIMES, RATES = "Time of an operation", "Bus bandwidth"
SHARED = "shared memory"
PLOTS = {
    "ucx-over-tcp": [
        ("ucx_perftest on 2 cores, MB/s", "linear", [
            ("weft_tcp", WEFT, "Every size", "tag_bw ", "weft_tcp"),
            ("UCX's tcp, tuned", TUNED, "Every size", "tag_bw ",
             "64k segments"),
            ("UCX's tcp", PLAIN, "Every size", "tag_bw ", "UCX's tcp")]),
        ("MPI on 16 cores, us per message", "log", [
            ("weft_tcp", WEFT, "MPI", "1 pairs, latency", "weft_tcp"),
            ("UCX's tcp", PLAIN, "MPI", "1 pairs, latency", "UCX's tcp"),
            ("Open MPI's own tcp", OTHER, "MPI", "1 pairs, latency",
             "Open MPI's tcp")])],
    "shaped-flows": [
        (f"A small message beside blocks, {what}, ms", "linear", [
            ("weft_tcp", WEFT, LOADED, "", f"weft_tcp, {name}"),
            ("UCX's tcp", PLAIN, LOADED, "", f"UCX's tcp, {name}"),
            ("Dask's tcp://", OTHER, LOADED, "", f"Dask's tcp://, {name}")])
        for what, name in (("the median", "median"),
                           ("the 99th of a hundred", "p99"))],
    "ucx-over-nvlink": [
        (title, "log", [
            ("cuda_ipc, in one container", BEST, CUDA, what, "cuda_ipc"),
            ("weft_nvl, two containers", WEFT, CUDA, what, "weft"),
            ("UCX's tcp, two containers", PLAIN, CUDA, what, "tcp")])
        for what, title in (("bandwidth", "GPU to GPU, GB/s"),
                            ("latency", "GPU to GPU, us per message"))],
    "kv-transfer": [
        (f"{word} of 10,000 blocks of GPU memory, GB/s", "log", [
            (label, style, GPUS, f"{word} 10,000", column)
            for label, style, column in (
                ("cuda_ipc, no pods", BEST, "cuda_ipc"),
                ("weft_nvl", WEFT, "weft_nvl"),
                ("weft_shm, nodes hidden", TUNED, "host"),
                ("weft_tcp", ALSO_WEFT, "weft_tcp"),
                ("UCX's tcp", PLAIN, "tcp"))]) for word in ("WRITE", "READ")],
    "nccl-over-nvlink": [
        (f"all_reduce, {unit}", "log", [
            ("one container", BEST, heading, "all_reduce", "native"),
            ("two, introduced by weft", WEFT, heading, "all_reduce",
             "preload"),
            ("two, no device nodes, weft", ALSO_WEFT, HIDDEN, "all_reduce",
             f"{SHARED}, {unit}"),
            ("two, NCCL's sockets", PLAIN, heading, "all_reduce", "socket")])
        for unit, heading in (("GB/s", RATES), ("us", TIMES))],
    "nccl-over-tcp": [
        (title, scale, [
            ("weft", WEFT, heading, "all_reduce", "weft"),
            ("16 threads", OTHER, heading, "all_reduce", "socket-16"),
            ("4 x 4 sockets", TUNED, heading, "all_reduce", "socket-4x4"),
            ("NCCL's sockets", PLAIN, heading, "all_reduce", "socket")])
        for title, scale, heading in (
            ("all_reduce, GB/s of bus bandwidth", "linear", RATES),
            ("all_reduce, us", "log", TIMES))],
}


def cells(line):
    return [cell.strip() for cell in line.strip("|\n").split("|")]


def table(page, heading, column):
    """The rows of the first table under @heading that has @column."""
    with open(f"{HERE}/performance/{page}.md") as file:
        lines = iter(file.read().split("\n"))
    for line in lines:
        if line.startswith("#") and line.lstrip("# ") == heading:
            break
    for line in lines:
        if line.startswith("#"):
            break
        if line.startswith("|") and column in cells(line):
            rows = [cells(line)]
            for row in lines:
                if not row.startswith("|"):
                    return rows
                rows.append(cells(row))
    sys.exit(f"plot.py: {page}.md has no table with '{column}' under "
             f"'{heading}'")


def points(page, heading, begin, column):
    """[(bytes or ms, figure), ...]"""
    head, _, *rows = table(page, heading, column)
    at, found = head.index(column), []
    for row in rows:
        if not row[0].startswith(begin) or row[at] in ("", "-"):
            continue
        size = re.search(r"([\d.]+) ([KMG]iB|B|ms)\b", row[0])
        figure = float(row[at].split()[0])
        if size and figure:
            found.append((float(size[1]) * UNITS[size[2]], figure))
    if len(found) < 2:
        sys.exit(f"plot.py: {page}.md, '{column}' under '{heading}': "
                 f"{len(found)} figures")
    return found


def plain(figure, _=None):
    return f"{figure:,.10g}"


def draw(page, out):
    figure = pyplot.figure(figsize=(9, 3.3))
    legend = {}
    for number, (title, scale, lines) in enumerate(PLOTS[page]):
        axes = figure.add_axes([0.055 + 0.5 * number, 0.08, 0.43, 0.75])
        sizes = []
        for label, style, *where in lines:
            line = points(page, *where)
            sizes += [size for size, _ in line]
            legend[label], = axes.plot(*zip(*line), markersize=5,
                                       **{"linewidth": 1.6, **style})
        ticks = {size: size_text(size) for size in TICKS
                 if min(sizes) <= size <= max(sizes)}
        if page == "shaped-flows":
            ticks = {ms: f"{ms:g} ms" for ms in sizes}
        axes.set_xscale("log", base=2)
        axes.set_yscale(scale)
        axes.set_ylim(bottom=0 if scale == "linear" else None)
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(plain)
        axes.grid(color="#d8dee4", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(title, loc="left", fontsize=10)
    figure.legend(legend.values(), legend, loc="upper left",
                  bbox_to_anchor=(0.045, 1), ncols=5, frameon=False)
    figure.savefig(f"{out}/{page}.svg", metadata={"Date": None})
    pyplot.close(figure)


def main():
    # text stays text; names of parts do not depend on the day
    matplotlib.rcParams.update({
        "svg.fonttype": "none", "svg.hashsalt": "weft",
        "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"],
        "font.size": 9})
    for page in PLOTS:
        draw(page, sys.argv[1] if len(sys.argv) > 1 else f"{HERE}/performance")


if __name__ == "__main__":
    main()
