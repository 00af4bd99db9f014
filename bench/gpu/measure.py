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

    def __init__(self, sync, barrier):
        self.sync, self.barrier = sync, barrier

    def __call__(self, fn, warm, count):
        for _ in range(warm):
            fn()
        self.sync()
        self.barrier()
        self.sync()
        cpu, start = cpu_seconds(), time.perf_counter()
        for _ in range(count):
            fn()
        self.sync()
        spent = time.perf_counter() - start
        return spent / count, (cpu_seconds() - cpu) / count


def row(op, size, world, seconds, cpu, bad):
    rows.report(op=op, bytes=size, us=seconds * 1e6,
                busbw=size / seconds * bus_factor(op, world) / 1e9,
                cpu_s_per_gb=cpu / size * 1e9, bad=bad)
