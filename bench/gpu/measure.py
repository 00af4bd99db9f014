# SPDX-License-Identifier: BSD-3-Clause
"""What the rank programs that measure share: sizes, iterations, figures."""
import resource
import time

import rows

SIZES = [8, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 1 << 20, 8 << 20, 64 << 20,
         256 << 20]


def rounds(size):
    """Warm-up and timed iterations; the same on all ranks."""
    if size <= 64 << 10:
        return 30, 200
    if size <= 1 << 20:
        return 10, 60
    if size <= 8 << 20:
        return 5, 20
    return 2, 6


def bus_factor(op, world):
    """From bytes per operation and time to bus bandwidth, as nccl-tests do."""
    return {"all_reduce": 2 * (world - 1) / world,
            "all_gather": (world - 1) / world,
            "reduce_scatter": (world - 1) / world,
            "all_to_all": (world - 1) / world,
            "broadcast": 1.0, "send_recv": 1.0}[op]


def cpu_seconds():
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


class Timer:
    """Times fn() @count times between two sync() and a barrier."""

    def __init__(self, sync, barrier, stamp, apart):
        """@stamp marks the stream's time; @apart: ms between two marks."""
        self.sync, self.barrier = sync, barrier
        self.stamp, self.apart = stamp, apart

    def __call__(self, fn, warm, count):
        for _ in range(warm):
            fn()
        self.sync()
        self.barrier()
        self.sync()
        cpu, start = cpu_seconds(), time.perf_counter()
        marks = [self.stamp()]
        for _ in range(count):
            fn()
            marks.append(self.stamp())
        self.sync()
        spent = time.perf_counter() - start
        cpu = (cpu_seconds() - cpu) / count
        each = sorted(self.apart(a, b) * 1e3 for a, b in zip(marks, marks[1:]))
        return {"us": spent / count * 1e6, "p50": each[count // 2],
                "p99": each[count * 99 // 100], "most": each[-1]}, cpu


def slowest(times, gather):
    """
    Each figure of the rank where it is largest: a rank that only sends is done
    as soon as the bytes are in its kernel's buffers.  @gather makes of a list
    of numbers those of all ranks.
    """
    return dict(zip(times, map(max, zip(*gather(list(times.values()))))))


def row(op, size, world, times, cpu, bad):
    rows.report(op=op, bytes=size, bad=bad, cpu_s_per_gb=cpu / size * 1e9,
                busbw=size / times["us"] * bus_factor(op, world) / 1e3,
                **times)
