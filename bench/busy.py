# SPDX-License-Identifier: BSD-3-Clause
"""
ucx_perftest between two processes whose cores have other work: processes that
spin, so many on each core.
"""
import contextlib
import os
import subprocess
import tempfile
import time

import perftest

ARMS = ("tcp", "posix", "weft_shm")
NEIGHBOURS = (1, 2, 4, 8)
SIZES = (65536, 1 << 20)
SECONDS = 2  # behind the first figure, which comes after a second
LIMIT = 60   # nothing until then counts as 0


def places():
    cpus = sorted(os.sched_getaffinity(0))
    found = {"one core": (cpus[0], cpus[0])}
    if len(cpus) > 1:
        found["two cores"] = (cpus[0], cpus[1])
    return found


@contextlib.contextmanager
def neighbours(cpus, count):
    spinning = [subprocess.Popen(["taskset", "-c", str(cpu), "sh", "-c",
                                  "while :; do :; done"])
                for cpu in set(cpus) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def last_rate(file):
    """MB/s from the start until the last line of results; None: no line."""
    file.seek(0)
    output = file.read()
    try:
        return perftest.figures(output)[5] * 1048576 / 1e6
    except RuntimeError:
        if "Connection refused" in output:
            raise ConnectionRefusedError from None
        return None


def watch(client, file, seconds):
    end, deadline = None, time.monotonic() + LIMIT
    while client.poll() is None and time.monotonic() < (end or deadline):
        if end is None and last_rate(file) is not None:
            end = time.monotonic() + seconds
        time.sleep(0.1)
    return last_rate(file)


def rate(ucx, preload, arm, size, cpus, seconds=SECONDS):
    """MB/s of tag_bw: as far as it comes, however slow that is."""
    env = perftest.environment(ucx, preload, arm, None)
    base = [f"{ucx}/bin/ucx_perftest", "-p", str(perftest.free_port())]
    pins = [["taskset", "-c", str(cpu)] for cpu in cpus]
    deadline = time.monotonic() + LIMIT
    server = subprocess.Popen([*pins[0], *base], env=env,
                              stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        while True:
            with tempfile.TemporaryFile("w+") as file:
                client = subprocess.Popen(
                    ["stdbuf", "-oL", *pins[1], *base, "127.0.0.1", "-t",
                     "tag_bw", "-s", str(size), "-n", "100000000", "-w", "4"],
                    env=env, stdout=file, stderr=subprocess.STDOUT)
                try:
                    return watch(client, file, seconds) or 0.0
                except ConnectionRefusedError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
                finally:
                    client.kill()
                    client.wait()
    finally:
        server.kill()
        server.wait()
