# SPDX-License-Identifier: BSD-3-Clause
"""join.c under one arm's settings: many workers of one scheduler."""
import json
import os
import subprocess

import perftest

HERE = os.path.dirname(os.path.abspath(__file__))
JOINING = ("tcp", "weft_tcp", "weft_shm")
WORKERS = (100, 1000)
POLLED = ("posix", "weft_shm", "weft_tcp")
SILENT = (1, 10, 50)


def build(ucx, folder):
    """It needs the headers of that UCX, which weft does not."""
    os.makedirs(folder, exist_ok=True)
    program = f"{folder}/join"
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-o",
                    program, f"{HERE}/join.c", "-I", f"{ucx}/include",
                    "-L", f"{ucx}/lib",
                    "-Wl,--unresolved-symbols=ignore-in-shared-libs",
                    "-lucp", "-lucs"], check=True)
    return program


def told(program, ucx, preload, arm, workers, *how):
    env = perftest.environment(ucx, preload, arm,
                               None if arm == "posix" else "lo")
    done = subprocess.run([program, str(workers), *how], env=env,
                          capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{arm}, {workers} workers: "
                           f"{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
