# SPDX-License-Identifier: BSD-3-Clause
"""ucx_perftest of one UCX, client and server, under one arm's settings."""
import contextlib
import os
import random
import re
import resource
import socket
import subprocess
import time

# What each arm sets; weft's have it preloaded.
ARMS = {
    "tcp": {"UCX_TLS": "tcp"},
    "tcp, 64k segments": {"UCX_TLS": "tcp", "UCX_TCP_TX_SEG_SIZE": "64k"},
    "weft_tcp": {"UCX_TLS": "weft_tcp"},
    "weft_shm": {"UCX_TLS": "weft_shm,weft_tcp"},
    "sm": {"UCX_TLS": "sm"},
    "posix": {"UCX_TLS": "posix"},
}
# Two share a network, as pods of hostNetwork do.
POD = ("unshare", "-uimpf", "--mount-proc", "--kill-child")
# Where they compete: what starts both sides, over which devices, the first ones,
# and weft's.
PLACES = {
    "lo": ((), "lo", ("tcp", "tcp, 64k segments"), "weft_tcp"),
    "two rails": ((), None, ("tcp", "tcp, 64k segments"), "weft_tcp"),
    "one host": ((), None, ("sm", "posix", "weft_tcp"), "weft_shm"),
    "two pods": (POD, None, ("tcp", "tcp, 64k segments", "weft_tcp"),
                 "weft_shm"),
}

FEW = (("tag_lat", 8), ("tag_lat", 8192), ("tag_bw", 65536),
       ("tag_bw", 1 << 20), ("tag_bw", 64 << 20))
LATENCY = [8, 1024, 8192, 65536, 1 << 20]
RATES = [1024, 16384, 65536, 1 << 20, 64 << 20]
# A stream of more than 64 KiB does not come to its end over UCX's tcp.
ALL = {"tag_lat": LATENCY,
       "tag_bw": sorted(RATES + [4096, 32768, 1 << 18, 8 << 20, 1 << 30]),
       "ucp_am_bw": RATES, "ucp_put_bw": RATES, "ucp_get": RATES,
       "stream_bw": RATES[:3]}
GPU = (8192, 65536, 1 << 20, 8 << 20, 64 << 20)
# Iterations by message size, up to it: about half a second each.
COUNTS = {1024: 20000, 8192: 10000, 65536: 4000, 1 << 18: 1500, 1 << 20: 600,
          8 << 20: 80, 64 << 20: 12, 1 << 30: 2}


def unit(test):
    return "us" if test.endswith("_lat") else "MB/s"


def iterations(size):
    return next(count for most, count in COUNTS.items() if size <= most)


def environment(ucx, preload, arm, devices):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("UCX_", "WEFT_", "LD_"))}
    env.update(ARMS[arm], LD_LIBRARY_PATH=f"{ucx}/lib",
               UCX_WARN_UNUSED_ENV_VARS="n")
    if arm.startswith("weft"):
        env["LD_PRELOAD"] = preload
    if devices:
        env["UCX_NET_DEVICES"] = devices
    return env


def free_port():
    """
    Below those that the kernel gives to clients, where a connection of an
    earlier run could still hold it when the server comes to bind.
    """
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        last = int(file.read().split()[0])
    while True:
        port = random.randrange(10000, last if last > 10100 else 32768)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port


def figures(output):
    """The columns of the line of results."""
    for line in reversed(output.splitlines()):
        columns = re.sub(r"^\[thread \d+\]", "", line)
        if re.fullmatch(r"[\s\d.]+", columns) and len(columns.split()) == 8:
            return [float(column) for column in columns.split()]
    raise RuntimeError(f"ucx_perftest told nothing:\n{output}")


def measure(ucx, preload, arm, test, size, devices=None, prefixes=((), ()),
            address="127.0.0.1", count=None, extra=None, options=()):
    """MB/s of tag_bw, or microseconds of tag_lat, averaged over a run."""
    env = environment(ucx, preload, arm, devices)
    env.update(extra or {})
    port = str(free_port())
    base = [f"{ucx}/bin/ucx_perftest", "-p", port, *options]
    server = subprocess.Popen([*prefixes[0], *base], env=env,
                              stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    count = count or iterations(size)
    client = [*prefixes[1], *base, address, "-t", test, "-s", str(size),
              "-n", str(count), "-w", str(count // 5 + 1), "-f"]
    try:
        deadline = time.monotonic() + 20
        while True:
            done = subprocess.run(client, env=env, capture_output=True,
                                  text=True, timeout=120)
            # The server says nothing when it begins to listen.
            if "Connection refused" not in done.stderr + done.stdout or \
                    time.monotonic() > deadline:
                break
            time.sleep(0.1)
    finally:
        server.kill()
        server.wait()
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    row = figures(done.stdout)
    return row[2] if unit(test) == "us" else row[5] * 1048576 / 1e6


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cost(ucx, preload, arm, size, devices):
    """
    MB/s of tag_bw, and seconds of processors of both sides per GB; who polls
    would take all of them.
    """
    count = 3 * iterations(size)
    before = processor_seconds()
    rate = measure(ucx, preload, arm, "tag_bw", size, devices, count=count,
                   options=("-E", "sleep"))
    moved = size * (count + count // 5 + 1) / 1e9
    return rate, (processor_seconds() - before) / moved


@contextlib.contextmanager
def flowing(server, client, received, least, limit, failure):
    """
    Starts both, the client again until the server listens, and ends them. In
    between @least more bytes are @received() within @limit seconds.
    """
    processes = [server()]
    try:
        deadline = time.monotonic() + limit
        enough = received() + least
        while received() < enough:
            if len(processes) == 1 or processes[-1].poll() is not None:
                processes.append(client())
            if time.monotonic() > deadline:
                raise RuntimeError(failure())
            time.sleep(0.2)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def bytes_per_second(received, seconds):
    first, at = received(), time.monotonic()
    time.sleep(seconds)
    return (received() - first) / (time.monotonic() - at)
