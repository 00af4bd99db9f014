# SPDX-License-Identifier: BSD-3-Clause
"""join.c under one arm's settings: many workers of one scheduler."""
import json
import subprocess

import perftest

JOINING = ("tcp", "weft_tcp", "weft_shm")
WORKERS = (100, 1000)
POLLED = ("posix", "weft_shm", "weft_tcp")
SILENT = (1, 10, 50)
# What of a run, how it is called, and its unit
FIGURES = {"seconds": ("until all have", "s"),
           "cpu_seconds": ("the scheduler's", "CPU s"),
           "descriptors": ("at most", "descriptors"),
           "kib_each": ("private memory", "KiB each"),
           "gone_seconds": ("until it knows that all were killed", "s")}


def flags(ucx):
    """It needs the headers of that UCX, which weft does not."""
    return ["-I", f"{ucx}/include", "-L", f"{ucx}/lib",
            "-Wl,--unresolved-symbols=ignore-in-shared-libs", "-lucp", "-lucs"]


def told(program, ucx, preload, arm, workers, *how):
    env = perftest.environment(ucx, preload, arm,
                               None if arm == "posix" else "lo")
    done = subprocess.run([program, str(workers), *how], env=env,
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{arm}, {workers} workers: "
                           f"{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
