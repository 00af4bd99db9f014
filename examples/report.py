# SPDX-License-Identifier: BSD-3-Clause
"""Prints what demo.sh left in a folder: times, bytes, and who carried them."""
import glob
import json
import sys

ARMS = (
    ("dask-tcp", "Dask's tcp://"),
    ("ucx-tcp", "ucxx://, UCX's tcp"),
    ("weft", "ucxx://, weft run"),
)


def results(folder, arm):
    """([(seconds, bytes) of each run], fastest first, bytes moved in all)."""
    runs, moved = [], 0
    with open(f"{folder}/{arm}/result") as file:
        for line in file:
            told = json.loads(line)
            runs += zip(told["times"], told["moved"])
            moved += told["total"]
    return sorted(runs), moved


def table(folder):
    """Prints a line for each arm; returns the bytes that Dask moved by weft."""
    runs, moved = {}, 0
    for arm, _ in ARMS:
        runs[arm], moved = results(folder, arm)
    # One run is in the middle, and it has a time and a rate.
    seconds = {arm: of[len(of) // 2][0] for arm, of in runs.items()}
    ratio = {arm: seconds[arm] / seconds["weft"] for arm in runs}
    tcp = ratio["dask-tcp"]
    print(f"\nBy its median run ucxx:// is {ratio['ucx-tcp']:.2f} x as fast "
          "over weft as over UCX's tcp.")
    if tcp <= 1.1:
        print("Dask's own tcp:// is as fast here, or faster: host memory on "
              "one host does not need\nucxx://; GPU memory does.")
    else:
        print(f"It is {tcp:.2f} x as fast as Dask's own tcp://.")
    print(f"\n{'':22}{'best run':>20}{'median run':>22}")
    for arm, name in ARMS:
        told = [runs[arm][0], runs[arm][len(runs[arm]) // 2]]
        print(f"{name:22}" + "  ".join(
            f"{took:7.3f} s{size / took / 1e6:6.0f} MB/s"
            for took, size in told) +
            f"   {len(runs[arm])} runs, results right")
    return moved


def got(row):
    return row["rx_message_bytes"] + row["rx_put_bytes"] + row["get_bytes"]


def main():
    folder = sys.argv[1]
    moved = table(folder)
    rows = []
    for path in glob.glob(f"{folder}/weft/counters.*"):
        with open(path) as file:
            rows += [json.loads(line) for line in file]
    carried = sum(got(row) for row in rows)
    blocks = sum(row["rx_puts"] + row["gets"] for row in rows)
    messages = sum(row["rx_messages"] for row in rows)
    # Linux takes lo to an address of its own, whatever interface has that.
    devices = sorted({"weft_shm" if row["weft"] == "shm" else
                      f"weft_{row['weft']} over lo" +
                      (f" (to an address of {row['netdev']})"
                       if row["netdev"] != "lo" else "")
                      for row in rows if got(row) > carried / 100})
    print(f"\nwho carried the bytes: {', '.join(devices) or 'not weft'}")
    print(f"weft's counters: {carried / 1e6:.1f} MB delivered, in {blocks} "
          f"blocks placed and {messages} messages;\n"
          f"Dask says that its workers moved {moved / 1e6:.1f} MB")
    if carried < moved:
        sys.exit("weft did not carry what Dask moved")


if __name__ == "__main__":
    main()
