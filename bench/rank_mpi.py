# SPDX-License-Identifier: BSD-3-Clause
"""
Patterns of OSU's benchmarks over MPI: windows of 64 messages one way, both ways,
and between several pairs of ranks; and one message there and back.

usage (each rank): rank_mpi.py SIZE...

The first half of the ranks sends to the second. Prints a line of JSON per
pattern and size: MB/s of all pairs together, or microseconds. After each
measurement a window is received into poisoned memory and compared.
"""
import json
import sys
import time

from mpi4py import MPI

WINDOW = 64
SECONDS = 0.3
PERIOD = 251  # bytes after which the pattern comes again
world = MPI.COMM_WORLD
rank, half = world.rank, world.size // 2
first = rank < half
peer = (rank + half) % (2 * half)


class Side:
    """What this rank sends, and where it receives."""

    def __init__(self, size, window):
        source = bytearray(bytes(range(PERIOD)) * (size // PERIOD + 2))
        self.out = [memoryview(source)[self.shift(rank, i):][:size]
                    for i in range(window)]
        self.into = [bytearray(size) for _ in range(window)]
        self.source = source

    @staticmethod
    def shift(sender, i):
        return (sender * 89 + i * 7) % PERIOD

    def poison(self):
        for i, into in enumerate(self.into):
            into[:] = b"\xff" * len(into)
            assert into != self.wanted(i)

    def wanted(self, i):
        return memoryview(self.source)[self.shift(peer, i):][:len(self.into[i])]

    def check(self):
        for i, into in enumerate(self.into):
            if into != self.wanted(i):
                sys.exit(f"rank {rank}: message {i} of {len(into)} B is wrong")


def window(side, sends, receives):
    """Messages, and the receiver's word that all have come."""
    requests = [world.Irecv(into, peer) for into in side.into] \
        if receives else []
    if sends:
        requests += [world.Isend(out, peer) for out in side.out]
    MPI.Request.Waitall(requests)
    word = bytearray(4)
    if not (sends and receives):
        if sends:
            world.Recv(word, peer)
        else:
            world.Send(word, peer)


def there_and_back(side):
    if first:
        world.Send(side.out[0], peer)
    world.Recv(side.into[0], peer)
    if not first:
        world.Send(side.out[0], peer)


def timed(step):
    """Seconds of one step, the same number of steps in all ranks."""
    step()
    world.Barrier()
    start = time.perf_counter()
    step()
    one = world.allreduce(time.perf_counter() - start, MPI.MAX)
    count = max(2, min(200000, int(SECONDS / max(one, 1e-7))))
    world.Barrier()
    start = time.perf_counter()
    for _ in range(count):
        step()
    return world.allreduce(time.perf_counter() - start, MPI.MAX) / count


def measure(size):
    for name, both in (("bw", False), ("bibw", True)):
        side = Side(size, WINDOW)

        def step(side=side, both=both):
            window(side, first or both, not first or both)
        seconds = timed(step)
        side.poison()
        step()
        if both or not first:
            side.check()
        moved = size * WINDOW * half * (1 + both)
        yield name, moved / seconds / 1e6, "MB/s"
    side = Side(size, 1)
    seconds = timed(lambda: there_and_back(side))
    side.poison()
    there_and_back(side)
    side.check()
    yield "latency", seconds / 2 * 1e6, "us"


def main():
    if world.size % 2:
        sys.exit("an even number of ranks is needed")
    for size in map(int, sys.argv[1:]):
        for name, value, unit in measure(size):
            if not rank:
                print(json.dumps({"pattern": name, "pairs": half,
                                  "size": size, "value": value,
                                  "unit": unit}), flush=True)


if __name__ == "__main__":
    main()
