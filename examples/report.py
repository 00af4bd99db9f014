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
    """(seconds of each run, best MB/s, bytes that Dask moved in all)."""
    times, best, moved = [], 0, 0
    with open(f"{folder}/{arm}/result") as file:
        for line in file:
            told = json.loads(line)
            times += told["times"]
            best = max(best, *(size / seconds / 1e6 for size, seconds
                               in zip(told["moved"], told["times"])))
            moved += told["total"]
    return sorted(times), best, moved


def main():
    folder = sys.argv[1]
    print(f"\n{'':22}{'best':>9}{'median':>9}{'at best':>14}")
    best = {}
    for arm, name in ARMS:
        times, rate, moved = results(folder, arm)
        best[arm] = times[0]
        print(f"{name:22}{times[0]:7.3f} s{times[len(times) // 2]:7.3f} s"
              f"{rate:9.0f} MB/s   {len(times)} runs, results right")
    print(f"by the best run, weft is {best['dask-tcp'] / best['weft']:.2f} x "
          "as fast as Dask's tcp:// and "
          f"{best['ucx-tcp'] / best['weft']:.2f} x as UCX's tcp")

    rows = []
    for path in glob.glob(f"{folder}/weft/counters.*"):
        with open(path) as file:
            rows += [json.loads(line) for line in file]
    carried = sum(row["rx_message_bytes"] + row["rx_put_bytes"]
                  for row in rows)
    puts = sum(row["rx_puts"] for row in rows)
    messages = sum(row["rx_messages"] for row in rows)
    devices = sorted({f"weft_{row['weft']} over {row['netdev']}"
                      for row in rows if row["rx_put_bytes"]})
    print(f"\nwho carried the bytes: {', '.join(devices) or 'not weft'}")
    print(f"weft's counters: {carried / 1e6:.1f} MB delivered, in {puts} "
          f"blocks placed and {messages} messages;\n"
          f"Dask says that its workers moved {moved / 1e6:.1f} MB")
    if carried < moved:
        sys.exit("weft did not carry what Dask moved")


if __name__ == "__main__":
    main()
