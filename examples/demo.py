# SPDX-License-Identifier: BSD-3-Clause
"""
The main job: x + x.T of a distributed array, summed and checked.  A plain Dask
program, which knows nothing of weft.  Rows of chunks are pinned to workers in
turn: of two workers half of the chunks cross the wire, in every run the same.

usage: demo.py SCHEDULER_FILE [SIZE [CHUNK [RUNS [WORKERS]]]]
"""
import json
import sys
import time

import dask.array as da
from distributed import Client, wait


def moved(dask_worker):
    """Bytes that this worker fetched from others, as Dask counts them."""
    return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)


def part(first, rows, columns, chunk):
    """Consecutive numbers from first on, in chunks of chunk columns."""
    return (da.arange(first, first + rows * columns, chunks=rows * columns,
                      dtype="f8")
            .reshape(rows, columns).rechunk((rows, chunk)))


def main():
    size, chunk, runs, workers = (
        int(arg) for arg in (sys.argv[2:] + ["8000", "2000", "1", "2"]
                             [len(sys.argv) - 2:]))
    with Client(scheduler_file=sys.argv[1]) as client:
        client.wait_for_workers(workers, timeout=60)
        times, bytes_moved = [], []
        for run in range(runs):
            at = sorted(client.nthreads())
            rows = range(0, size, chunk)
            homes = [[at[i * len(at) // len(rows)]] for i in range(len(rows))]
            # Row i column j is run + i * size + j: every element differs,
            # and the sum of x + x.T is known exactly.
            x = da.concatenate([
                client.persist(part(run + row * size, min(chunk, size - row),
                                    size, chunk), workers=home)
                for row, home in zip(rows, homes)])
            wait(x)
            # Nothing of what comes before is timed or counted.
            before = sum(client.run(moved).values())
            y = x + x.T
            start = time.perf_counter()
            got = sum(client.gather([
                client.compute(y[row:row + chunk].sum(), workers=home)
                for row, home in zip(rows, homes)]))
            times.append(time.perf_counter() - start)
            after = sum(client.run(moved).values())
            bytes_moved.append(after - before)
            n = float(size * size)
            want = n * (n - 1) + 2 * run * n
            assert abs(got - want) <= 1e-9 * want, (got, want)
            corner = y[:3, -3:].compute()
            for i in range(3):
                for j in range(3):
                    c = size - 3 + j
                    assert corner[i, j] == 2 * run + i * size + c + c * size + i
            del x, y
            # All so far: a worker that is cut off has reported this.
            total = sum(client.run(moved).values())
            print(json.dumps({"times": times, "moved": bytes_moved,
                              "total": total}), flush=True)


if __name__ == "__main__":
    main()
