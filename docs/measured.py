#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes what was measured into the pages: measured.py [--check]

A table between "<!-- measured" and "<!-- end -->" is made from a file of
docs/performance/results, which a benchmark has written (bench/report.py), as
make bench BENCH_FLAGS="--only PART --out FILE" does. The comment says how, a line
each:

  from: FILE PART: PLACE      rows of that part, where the place matches (*);
                              FILE may be a folder of files
  what: PATTERN; PATTERN      of these those whose test matches
  unit: UNIT                  and whose unit this is; GB/s also of MB/s
  columns: ARM = TITLE | ...  an arm each; a title is optional
  ratios: ARM / ARM | ...     of speeds, by what show says first
  show: {median} ({best})     of best, median, least, most; {best} by itself
  label: TITLE                of the first column
  brief: yes                  no line below that says where and when

Figures in sentences and in tables of other pages are those of FIGURES. With
--check nothing is written: a page that is not as it would be is named.
"""
import fnmatch
import glob
import json
import os
import re
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "bench"))

from report import Report, best, number, title  # noqa: E402

RESULTS = os.path.join(HERE, "performance", "results")
BLOCK = re.compile(r"(<!-- measured\n(.*?)-->\n).*?(<!-- end -->)", re.S)
KIB, MIB = 1 << 10, 1 << 20


class Results:
    """A file, or those of a folder: one of each run. Each is read once."""
    read = {}

    def __init__(self, name):
        if name not in self.read:
            self.read[name] = []
            for path in sorted(glob.glob(f"{RESULTS}/{name}.json")
                               + glob.glob(f"{RESULTS}/{name}/*.json")):
                with open(path) as file:
                    about = json.load(file)
                self.read[name] += [dict(row, about=about)
                                    for row in about.pop("rows")]
        self.all = self.read[name]

    def rows(self, part, where, what="*", unit=None):
        for row in self.all:
            if row["part"] == part and fnmatch.fnmatchcase(row["where"], where) \
                    and any(fnmatch.fnmatchcase(row["what"], pattern)
                            for pattern in what.split("; ")) \
                    and unit in (None, row["unit"], row["unit"].replace(
                        "MB/s", "GB/s")):
                yield row

    @staticmethod
    def place(rows):
        dates = sorted({row["about"]["date"] for row in rows})
        about = rows[0]["about"]
        machine, told = about["machine"], [" and ".join(dates)]
        told += [f"{name} {about[key]}" for key, name in
                 (("ucx", "UCX"), ("nccl", "NCCL"), ("gpus", ""))
                 if about.get(key)]
        rounds = sorted({len(values) for row in rows
                         for values in row["arms"].values()})
        told.append(f"{machine['cpus']} cores ({machine['cpu']}), Linux "
                    f"{machine['kernel']}")
        return re.sub(" +", " ", ", ".join(told)) + (
            f", rounds: {' to '.join(map(str, rounds[::len(rounds) - 1 or 1]))}")


def statistic(name, row, arm):
    values = row["arms"][arm]
    return {"best": lambda: best(values, row["unit"]),
            "least": lambda: min(values), "most": lambda: max(values),
            "median": lambda: statistics.median(values)}[name]()


def table(lines):
    spec = dict(line.split(": ", 1) for line in lines.splitlines())
    file, part = spec["from"].split(": ")[0].split()
    results, show = Results(file), spec.get("show", "{best}")
    rows = list(results.rows(part, spec["from"].split(": ", 1)[1],
                             spec.get("what", "*"), spec.get("unit")))
    if not rows:
        sys.exit(f"measured.py: no rows are meant by\n{lines}")
    arms = [cell.partition(" = ") for cell in spec["columns"].split(" | ")]
    ratios = [cell.split(" / ") for cell in spec.get("ratios", "").split(" | ")
              if cell]
    titles = {arm: title or arm for arm, _, title in arms}
    yield "| " + " | ".join(
        [spec.get("label", "")] + list(titles.values()) +
        [f"{titles.get(a, a)} to {titles.get(b, b)}" for a, b in ratios]) + " |"
    yield "|---" * (1 + len(arms) + len(ratios)) + "|"
    first = re.search(r"\{(\w+)\}", show)[1]
    for row in rows:
        yield "| " + " | ".join([label(row, rows, spec)] + [
            cell(row, arm, show, spec.get("unit")) for arm in titles] + [
            f"{ratio(row, a, b, first):.2f}" if a in row["arms"] and
            b in row["arms"] else "" for a, b in ratios]) + " |"
    if "brief" not in spec:
        yield f"\n{results.place(rows)}."


def label(row, rows, spec):
    text = title(row)
    if len({other["where"] for other in rows}) > 1:
        text = f"{row['where']}, {text}"
    if "unit" not in spec and len({other["unit"] for other in rows}) > 1:
        text += f", {row['unit']}"
    return text


def cell(row, arm, show, unit):
    if arm not in row["arms"]:
        return ""
    scale = 1000 if unit == "GB/s" and row["unit"] == "MB/s" else 1
    return re.sub(r"\{(\w+)\}", lambda name: number(
        statistic(name[1], row, arm) / scale), show)


def ratio(row, arm, other, name):
    return Report.ratio(row, arm, other,
                        best if name == "best" else None)


def figure(file, part, where, what, size, unit, arm, other=None,
           name="best"):
    """One figure, or one to another; of "ARM|ARM" the one that is faster."""
    rows = [row for row in Results(file).rows(part, where, what, unit)
            if row["size"] == size]
    if len(rows) != 1:
        sys.exit(f"measured.py: {len(rows)} rows of {file}: {part}, {where}, "
                 f"{what}, {size}, {unit}")
    if other:
        return f"{ratio(rows[0], arm, faster(rows[0], other, name), name):.2f}"
    return cell(rows[0], faster(rows[0], arm, name), "{%s}" % name, unit)


def faster(row, arms, name):
    arms = arms.split("|")
    return arms[0] if len(arms) == 1 else max(
        arms, key=lambda arm: ratio(row, arm, arms[0], name))


PAGE = "docs/performance/README.md"
SUM = "all_reduce", 256 * MIB, "GB/s"
SOCKETS = "socket-4x4|socket-16"  # tuned


def pods(file, arm):
    return file, "nccl", "*", *SUM, arm, None, "median"


def over_tcp(what, size, arm, other=None):
    return "nccl-tcp", "nccl", "torch", what, size, "GB/s", arm, other, "median"


def nvlink(arm, what="bandwidth", size=64 * MIB):
    return "ucx-nvlink", "ucx", "*", what, size, None, f"{arm} 1.22.0"


# The two ways of weft and UCX's tcp, in a row of a table.
NVLINK = "| # {0} | # {0} | # {0} |"


def nvlinks(*what):
    return [nvlink(arm, *what) for arm in ("mapped", "hidden", "tcp")]


GPU_DASK = [("dask-gpu", "dask", where, "*", None, "s", "seconds")
            for where in ("weft, two pods", "UCX's tcp, two pods")]


def perf(where, what, size, arm, other=None, file="bench-2-cores", unit=None):
    return file, "perftest", where, what, size, unit, arm, other


def dask(arm, other, name):
    return "bench-2-cores", "dask", "2 workers", "*", None, "s", arm, other, name


def mpi(pairs, what, size):
    return "bench-16-cores", "mpi", f"{pairs} pairs", what, size, None, \
        "weft_tcp", "UCX's tcp"


LOST = "10 ms, 1 % lost, MTU 1500"
TCP, TUNED = "tcp", "tcp, 64k segments"
HOME, PODS = "one container", "two pods, weft run"
# A page, a piece of it with # for each figure, and the figures.
FIGURES = [
    (PAGE, "sockets, # GB/s; tuned, # | **#** GB/s, as in one container",
     [pods("nccl-pods", arm) for arm in ("socket", "socket-4x4", "preload")]),
    (PAGE, "sockets, # GB/s; tuned, # | **#** GB/s, by NCCL's shared memory",
     [pods("nccl-hidden", arm) for arm in ("socket", "socket-4x4",
                                           "preload")]),
    (PAGE, "as they come, tuned | **#** and **#** times the speed",
     [over_tcp("all_reduce", 256 * MIB, "weft", "socket"),
      over_tcp("all_reduce", 256 * MIB, "weft", SOCKETS)]),
    (PAGE, "NCCL's sockets, tuned | **#** of the speed",
     [over_tcp("broadcast", MIB, "weft", SOCKETS)]),
    (PAGE, "UCX's tcp, # GB/s; cuda_ipc in one container, # | **#** GB/s | "
     "[ucx-over-nvlink.md]",
     [nvlink(arm) for arm in ("tcp", "cuda_ipc", "mapped")]),
    (PAGE, "UCX's tcp, # GB/s; its pipeline in one container, # | **#** GB/s",
     [nvlink(arm) for arm in ("tcp", "posix", "hidden")]),
    (PAGE, "two H100 | UCX's tcp, # s | **#** s",
     GPU_DASK[::-1]),
    (PAGE, "UCX's tcp, # GB/s; cuda_ipc in one container, # | **#** GB/s | "
     "[kv-transfer.md]",
     [("nixl", "nixl", "GPU", "READ 10,000", 64 * KIB, "GB/s", arm)
      for arm in ("tcp", "cuda_ipc", "weft_nvl")]),
    (PAGE, "as it comes and tuned | **#** and **#** times the speed | "
     "[ucx-over-shm.md]",
     [perf("two pods", "tag_bw", MIB, "weft_shm", arm)
      for arm in (TCP, TUNED)]),
    (PAGE, "16 cores, median | UCX's `posix` | **#** of the speed",
     [("bench-16-cores", "perftest", "one host", "tag_lat", 8, "us",
       "weft_shm", "posix", "median")]),
    (PAGE, "H200, 16 cores | the same | **#** and **#** |",
     [("bench-16-cores", "gpu", "*", "tag_bw, cuda memory", 64 * MIB, None,
       "weft_tcp", arm) for arm in (TCP, TUNED)]),
    (PAGE, "as it comes and tuned | **#** and **#** times the speed | "
     "[ucx-over-tcp.md]",
     [perf("lo", "tag_bw", MIB, "weft_tcp", arm) for arm in (TCP, TUNED)]),
    (PAGE, "32 cores | the same | **#** and **#** |",
     [perf("lo", "tag_bw", MIB, "weft_tcp", arm, "bench-32-cores")
      for arm in (TCP, TUNED)]),
    (PAGE, "latency of 8 B, 2 cores | UCX's tcp as it comes | **#** of",
     [perf("lo", "tag_lat", 8, "weft_tcp", TCP)]),
    (PAGE, "tuned: # s of processors | **#** s",
     [("bench-2-cores", "cost", "lo", "tag_bw", MIB, "CPU s per GB", arm)
      for arm in (TUNED, "weft_tcp")]),
    (PAGE, "one flow, # MB/s | **#** MB/s",
     [("bench-2-cores", "shaped", "*", "tag_bw", MIB, "MB/s", arm)
      for arm in ("one flow, UCX's tcp", "as many as weft finds")]),
    (PAGE, "UCX's tcp, # and # of what TCP can carry | **#** |",
     [("bench-2-cores", "wire", "*", LOST, MIB, None, arm, None, "median")
      for arm in ("a socket", "tcp", "weft_tcp")]),
    (PAGE, "Dask's `tcp://` | **#** of the speed (median **#**)",
     [dask("ucxx, weft_shm", "tcp://", name) for name in ("best", "median")]),
    (PAGE, "UCX's tcp under ucxx | **#** times the speed (median **#**)",
     [dask("ucxx, weft_shm", "ucxx, tcp", name)
      for name in ("best", "median")]),
    (PAGE, "one pair and four | UCX's tcp | **#** and **#** times the speed",
     [mpi(1, "bw", MIB), mpi(4, "bw", MIB)]),
    (PAGE, "without weft an error | **#** and **#** of the speed",
     [("symmetric", "symmetric", "*", f"{way}, 4096 tokens", 58720256, "us",
       PODS, HOME, "median") for way in ("dispatch", "combine")]),
    ("docs/nccl.md", "256 MiB at # GB/s between two H200, where NCCL's sockets "
     "reach # |", [pods("nccl-pods", arm) for arm in ("preload", "socket")]),
    ("docs/nccl.md", "# GB/s where NCCL's sockets reach # (256 MiB",
     [over_tcp("all_reduce", 256 * MIB, arm) for arm in ("weft", "socket")]),
    ("docs/gpu.md", "64 MiB: # GB/s, weft_nvl #)",
     [nvlink("cuda_ipc"), nvlink("mapped")]),
    ("docs/gpu.md", "8 B " + NVLINK.format("us"), nvlinks("latency", 8)),
    ("docs/gpu.md", "1 MiB " + NVLINK.format("GB/s"),
     nvlinks("bandwidth", MIB)),
    ("docs/gpu.md", "64 MiB " + NVLINK.format("GB/s"), nvlinks()),
    ("docs/gpu.md", "CuPy | # s | | # s |", GPU_DASK),
    ("README.md", "two H200 | # GB/s | # GB/s | **# GB/s**",
     [pods("nccl-pods", arm) for arm in ("socket", "socket-4x4", "preload")]),
    ("README.md", ", 2 cores | # GB/s | # GB/s | **# GB/s**",
     [perf("two pods", "tag_bw", MIB, arm, unit="GB/s")
      for arm in (TCP, TUNED, "weft_shm")]),
    ("README.md", "32 cores | # GB/s | # GB/s | **# GB/s**",
     [over_tcp("all_reduce", 256 * MIB, arm)
      for arm in ("socket", SOCKETS, "weft")]),
]


def with_figures(page, text):
    for where, piece, figures in FIGURES:
        if where != page:
            continue
        pattern = re.escape(piece).replace(r"\#", r"[0-9.]+")
        found = re.findall(pattern, text)
        if len(found) != 1:
            sys.exit(f"measured.py: {page}: {len(found)} pieces are '{piece}'")
        new = piece
        for values in figures:
            new = new.replace("#", figure(*values), 1)
        text = text.replace(found[0], new)
    return text


def main():
    pages = [f"docs/performance/{name}"
             for name in os.listdir(f"{HERE}/performance")
             if name.endswith(".md")]
    stale = []
    for page in sorted({*pages, *(where for where, *_ in FIGURES)}):
        path = os.path.join(HERE, "..", page)
        with open(path) as file:
            text = file.read()
        new = with_figures(page, BLOCK.sub(
            lambda block: block[1] + "\n".join(table(block[2])) + "\n" +
            block[3], text))
        if new == text:
            continue
        stale.append(page)
        if "--check" not in sys.argv:
            with open(path, "w") as file:
                file.write(new)
    if "--check" in sys.argv and stale:
        sys.exit("other figures than docs/performance/results has (make "
                 f"update-measured): {' '.join(stale)}")


if __name__ == "__main__":
    main()
