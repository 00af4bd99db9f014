# SPDX-License-Identifier: BSD-3-Clause
"""Prints what demo.sh left in a folder: times, bytes, and who carried them."""
import glob
import json
import os
import sys

ARMS = (
    ("dask-tcp", "Dask's tcp://"),
    ("ucx-tcp", "ucxx://, UCX's tcp"),
    ("weft", "ucxx://, weft run"),
)
FEWEST = 3  # runs that say how much they spread


def read(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def results(folder, arm):
    """([(seconds, bytes) of each run], fastest first, bytes moved in all)."""
    runs, moved = [], 0
    for path in glob.glob(f"{folder}/{arm}/result.*"):
        # A line per run, which holds those before it; UCX's log is between them.
        told = [line for line in read(path).splitlines() if line[:1] == "{"]
        if told:
            told = json.loads(told[-1])
            runs += zip(told["times"], told["moved"])
            moved += told["total"]
    return sorted(runs), moved


def median(runs):
    """The run in the middle, which has a time and a rate."""
    return runs[len(runs) // 2]


def ratio(slow, fast):
    """How many times as fast one is in its best and in its median run, the
    smaller of both; None unless the runs lie further apart than they spread."""
    if min(len(slow), len(fast)) < FEWEST or median(fast)[0] >= slow[0][0]:
        return None
    return min(slow[0][0] / fast[0][0], median(slow)[0] / median(fast)[0])


def as_fast(some, others):
    return (min(len(some), len(others)) >= FEWEST and
            median(some)[0] <= median(others)[0])


def compare(name, other, weft, load):
    """A sentence on weft and another arm."""
    faster, slower = ratio(other, weft), ratio(weft, other)
    if faster:
        return f"Over weft ucxx:// is {faster:.2f} x as fast as {name}."
    if slower:
        return f"{name} is {slower:.2f} x as fast as ucxx:// over weft."
    if min(len(other), len(weft)) < FEWEST:
        return f"{name} against weft: too few runs to tell."
    return f"{name} against weft: too close or too noisy to tell ({load})."


def table(folder, load):
    """Prints a line for each arm."""
    runs = {arm: results(folder, arm)[0] for arm, _ in ARMS}
    if runs["weft"]:
        print()
        print(compare("UCX's own tcp", runs["ucx-tcp"], runs["weft"], load))
        print(compare("Dask's own tcp://", runs["dask-tcp"], runs["weft"],
                      load))
        if as_fast(runs["dask-tcp"], runs["weft"]):
            print("Host memory on one host does not need ucxx://; GPU memory "
                  "does.")
    print(f"\n{'':20}{'best run':>20}{'median run':>22}   {load}")
    for arm, name in ARMS:
        # why there is nothing, or not all
        note = read(f"{folder}/{arm}/note")
        note = f"; {note}" if note else ""
        if not runs[arm]:
            print(f"{name:20}   no run ended{note}")
            continue
        print(f"{name:20}" + "  ".join(
            f"{took:7.3f} s{size / took / 1e6:6.0f} MB/s"
            for took, size in (runs[arm][0], median(runs[arm]))) +
            f"   {len(runs[arm])} runs, results right{note}")
    sizes = {size for of in runs.values() for _, size in of}
    if sizes:
        least, most = min(sizes) / 1e6, max(sizes) / 1e6
        print(f"Each run moved {least:.1f} MB" +
              (f" to {most:.1f} MB" if most > 1.01 * least else "") +
              " between the workers.")


def got(row):
    return row["rx_message_bytes"] + row["rx_put_bytes"] + row["get_bytes"]


def carriers(folder):
    """Prints what carried the bytes of weft's arm."""
    runs, moved = results(folder, "weft")
    if not runs:
        print("\nwho carried the bytes: no run over weft ended")
        return
    rows = []
    for path in glob.glob(f"{folder}/weft/counters.*"):
        rows += [json.loads(line) for line in read(path).splitlines()]
    carried = sum(got(row) for row in rows)
    # Linux takes lo to an address of its own, whatever interface has that.
    devices = sorted({"weft_shm" if row["weft"] == "shm" else
                      f"weft_{row['weft']} over lo" +
                      (f" (to an address of {row['netdev']})"
                       if row["netdev"] != "lo" else "")
                      for row in rows if got(row) > carried / 100})
    print(f"\nwho carried the bytes: {', '.join(devices) or 'not weft'}")
    print(f"weft's counters: {carried / 1e6:.1f} MB delivered; "
          f"Dask says that its workers moved {moved / 1e6:.1f} MB")
    if carried < moved or not moved:
        sys.exit("weft did not carry what Dask moved")


def main():
    folder = sys.argv[1]
    load = f"load {read(folder + '/load') or '?'} on {os.cpu_count()} cores"
    table(folder, load)
    carriers(folder)
    failed = [name for arm, name in ARMS
              if read(f"{folder}/{arm}/note") == "failed"]
    if failed:
        sys.exit(f"failed: {'; '.join(failed)}")


if __name__ == "__main__":
    main()
