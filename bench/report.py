# SPDX-License-Identifier: BSD-3-Clause
"""
What a benchmark measured: a row for each thing, with every round of every arm. Rows
are printed as they come, with the least, the median and the most of each arm, and what
weft is to the others; and written to a file that docs/measured.py makes the tables
of docs/performance from.
"""
import json
import os
import platform
import re
import statistics
import subprocess
import time

# Of all other units more is better.
LESS = ("us", "s", "ns", "us, p50", "us, p99", "us, most", "ms, median",
        "ms, p99", "CPU s per GB", "CPU s", "descriptors", "KiB each",
        "bytes each", "sockets each")


def size_text(size):
    for unit, one in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= one:
            return f"{size / one:g} {unit}" if not size % one else \
                f"{size / 1e6:.1f} MB"
    return f"{size} B"


def title(row):
    return row["what"] if row["size"] is None else \
        f"{row['what']} {size_text(row['size'])}"


def number(value):
    """Three digits, or the whole number."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.3g}"


def best(values, unit):
    return min(values) if unit in LESS else max(values)


def machine():
    with open("/proc/cpuinfo") as file:
        model = [line.split(":")[1].strip() for line in file
                 if line.startswith("model name")]
    return {"cpu": re.sub(r"\(R\)| Processor$", "", model[0]) if model
            else platform.machine(),
            "cpus": len(os.sched_getaffinity(0)),
            "kernel": ".".join(platform.release().split(".")[:2]),
            "load": round(os.getloadavg()[0], 2),
            "python": platform.python_version()}


def gpus():
    """As "2 x NVIDIA H200"; "" where there are none."""
    try:
        names = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True, text=True).stdout.splitlines()
    except FileNotFoundError:
        return ""
    return ", ".join(f"{names.count(name)} x {name}"
                     for name in sorted(set(names)))


class Report:
    def __init__(self, path, **about):
        """@about: versions, and what else the figures depend on."""
        self.path, self.rows, self.head = path, [], None
        self.about = {"date": time.strftime("%Y-%m-%d"), **about,
                      "gpus": gpus(), "machine": machine()}
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)

    def add(self, part, where, what, size, unit, got):
        """
        @where: the place or the case; @what: the test; @size: bytes, or None;
        @got: {arm: [a figure of each round]}.
        """
        got = {arm: [float(f"{value:.5g}") for value in values]
               for arm, values in got.items() if values}
        self.rows.append({"part": part, "where": where, "what": what,
                          "size": size, "unit": unit, "arms": got})

    def row(self, part, where, what, size, unit, got, weft=None):
        """Adds it, prints it, beside arm @weft the others, and saves all."""
        self.add(part, where, what, size, unit, got)
        self.show(self.rows[-1], weft)
        self.save()

    def show(self, row, weft):
        head = (row["part"], row["where"], *row["arms"])
        if head != self.head:
            self.head = head
            print(f"\n{row['part']}, {row['where']}; least median most of "
                  + " | ".join(row["arms"]), flush=True)
        line = f"{title(row) + ', ' + row['unit']:34} " + " | ".join(
            " ".join(number(f(values)) for f in (min, statistics.median, max))
            for values in row["arms"].values())
        if weft in row["arms"]:
            # of speeds, by the best and by the median
            line += f"   {weft}: " + ", ".join(
                f"{self.ratio(row, weft, arm, best):.2f} and "
                f"{self.ratio(row, weft, arm, None):.2f} x {arm}"
                for arm in row["arms"] if arm != weft and "weft" not in arm)
        print(line, flush=True)

    @staticmethod
    def ratio(row, arm, other, of):
        """Of speeds, by the best or by the median."""
        mine, peer = (of(row["arms"][name], row["unit"]) if of else
                      statistics.median(row["arms"][name])
                      for name in (arm, other))
        mine, peer = max(mine, 1e-9), max(peer, 1e-9)
        return peer / mine if row["unit"] in LESS else mine / peer

    def save(self):
        with open(self.path, "w") as file:
            file.write(json.dumps(self.about)[:-1] + ', "rows": [\n')
            file.write(",\n".join(json.dumps(row) for row in self.rows))
            file.write("\n]}\n")
