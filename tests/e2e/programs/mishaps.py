# SPDX-License-Identifier: BSD-3-Clause
"""
Work that goes on while something happens to one of the workers.

usage: mishaps.py SCHEDULER_FILE moves COUNT
       mishaps.py SCHEDULER_FILE hold SECONDS FILE

moves: COUNT times, every worker makes 32 MB blocks and a sum of neighbours
crosses the wire; the values are known.  A worker that dies costs its blocks,
which Dask makes again elsewhere.
hold: worker2 takes the GIL for SECONDS in the middle of a block of 256 MB that
flows to it from worker1, and a block of its own is asked for by worker1.
"""
import ctypes
import json
import sys
import time

import numpy as np
from distributed import Client

ELEMENTS = 4 << 20
LARGE = 32 << 20


def block(number):
    return np.arange(number, number + ELEMENTS, dtype="f8")


def neighbours(a, b):
    return float((a + b).sum())


def wanted(numbers):
    """Sum of block n and block n + 1, for each n."""
    n = float(ELEMENTS)
    return [n * (n - 1) + (2 * number + 1) * n for number in numbers]


def moves(client, count):
    start = time.monotonic()
    for turn in range(count):
        numbers = [turn * 100 + i for i in range(8)]
        blocks = client.map(block, numbers + [numbers[-1] + 1])
        sums = client.map(neighbours, blocks[:-1], blocks[1:])
        assert client.gather(sums) == wanted(numbers)
        print(f"turn {turn}", flush=True)
    print(json.dumps({"seconds": time.monotonic() - start}))


def received():
    with open("/sys/class/net/eth0/statistics/rx_bytes") as file:
        return int(file.read())


def hold(seconds, path):
    """Waits for blocks to come in, then stops every thread of Python's."""
    before = received()
    deadline = time.monotonic() + 30
    while received() < before + (8 << 20):
        assert time.monotonic() < deadline, "no block came"
    with open(path, "w") as file:
        file.write("held\n")
    at = received()
    start = time.monotonic()
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return time.monotonic() - start, at


def holds(client, seconds, path):
    names = {info["name"]: address for address, info
             in client.scheduler_info()["workers"].items()}
    one, two = names["worker1"], names["worker2"]
    here = [client.submit(np.arange, LARGE, dtype="f8", workers=[one],
                          pure=False)]
    there = client.submit(block, 99, workers=[two], pure=False)
    client.gather(client.map(len, [*here, there], pure=False))
    held = client.submit(hold, seconds, path, workers=[two], priority=10)
    # Data flows to worker2 when the GIL goes, and worker1 asks it for more.
    large = client.map(np.sum, here, workers=[two], pure=False)
    back = client.submit(np.sum, there, workers=[one], pure=False)
    took, _ = held.result()
    assert took >= seconds, (took, seconds)
    n, m = float(LARGE), float(ELEMENTS)
    got = client.gather([*large, back])
    assert got == [n * (n - 1) / 2, 99 * m + m * (m - 1) / 2], got
    print(json.dumps({"held": took}))


def main():
    with Client(scheduler_file=sys.argv[1]) as client:
        client.wait_for_workers(2, timeout=60)
        if sys.argv[2] == "moves":
            moves(client, int(sys.argv[3]))
        else:
            holds(client, float(sys.argv[3]), sys.argv[4])


if __name__ == "__main__":
    main()
