# SPDX-License-Identifier: BSD-3-Clause
"""
The same over a cable that loses frames and takes its time: wire.c between two
hosts. What polls would take the relay's processor on a small machine: both sides
sleep.
"""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

import perftest

MBIT = int(os.environ.get("WEFT_BENCH_MBIT", "1000"))
ARMS = ("a socket", "tcp", "weft_tcp")
# By load.py: protocol, arm of perftest
LOADED = {"tcp://": ("tcp", None), "ucxx, tcp": ("ucxx", "tcp"),
          "ucxx, weft_tcp": ("ucxx", "weft_tcp")}
# One way in us; of a million frames; MTU
CASES = ((50, 0, 1500), (500, 0, 1500), (5000, 0, 1500), (5000, 0, 9000),
         (5000, 1000, 1500), (5000, 10000, 1500))
LOADED_CASES = ((50, 0, 1500), (500, 0, 1500), (5000, 0, 1500))
SETTLE = 4  # seconds until TCP has found its speed
SERVER = """
import socket
with socket.create_server(("", 13337)) as s:
    c, _ = s.accept()
    into = bytearray(1 << 20)
    while c.recv_into(into):
        pass
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 13337)) as c:
    while True:
        c.sendall(bytes(1 << 20))
"""


def share(mtu):
    """Of the cable's bits, those that are data of TCP: 52 bytes of headers."""
    return (mtu - 52) / (mtu + 14)


def told(case):
    delay, loss, mtu = case
    return f"{delay / 500:g} ms, {loss / 10000:g} % lost, MTU {mtu}"


@contextlib.contextmanager
def cable(program, network, case):
    delay, loss, mtu = case
    with network(2) as net:
        a, b = net.hosts
        process = subprocess.Popen(
            [program, a.name, b.name, str(MBIT), str(delay), str(loss),
             str(mtu)], stdout=subprocess.PIPE, text=True)
        try:
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("wire does not start")
            for host in net.hosts:
                address = f"10.79.0.{host.number}/24"
                for words in (("address", "add", address, "dev", "wire0"),
                              ("link", "set", "wire0", "up")):
                    subprocess.run(["ip", "-n", host.name, *words],
                                   check=True)
            yield a, b
        finally:
            process.kill()
            process.wait()


def received(host, mtu):
    """
    Bytes of data that have come, each once: frames, but for those that TCP had
    already.
    """
    out = subprocess.run(
        ["ip", "netns", "exec", host.name, "cat",
         "/sys/class/net/wire0/statistics/rx_bytes", "/proc/net/netstat"],
        check=True, capture_output=True, text=True).stdout
    frames, names, numbers, *_ = out.splitlines()
    told = dict(zip(names.split(), numbers.split()))
    again = int(told["TCPDSACKOldSent"]) + int(told["TCPDSACKOfoSent"])
    return int(frames) * share(mtu) - again * (mtu - 52)


def run(host, argv, env, said):
    return subprocess.Popen(["ip", "netns", "exec", host.name, *argv], env=env,
                            stdout=said, stderr=said)


def commands(ucx, preload, arm):
    """Environment, server and client of one arm."""
    if arm == "a socket":
        return None, ["python3", "-c", SERVER], \
            ["python3", "-c", CLIENT, "10.79.0.2"]
    base = [f"{ucx}/bin/ucx_perftest", "-p", "13337", "-E", "sleep"]
    return perftest.environment(ucx, preload, arm, "wire0"), base, \
        [*base, "10.79.0.2", "-t", "tag_bw", "-s", str(1 << 20), "-n",
         "1000000", "-w", "1"]


def goodput(ucx, preload, program, network, arm, case, seconds):
    """Mbit/s of data that arrive at the second host, in mid-run."""
    env, server, client = commands(ucx, preload, arm)
    mtu = case[2]
    with cable(program, network, case) as (a, b), \
            tempfile.TemporaryFile("w+") as said:
        def failure():
            said.seek(0)
            return f"{arm}, {case}: nothing flows\n{said.read()}"

        with perftest.flowing(lambda: run(b, server, env, said),
                              lambda: run(a, client, env, said),
                              lambda: received(b, mtu), 4 << 20, 60, failure):
            time.sleep(SETTLE)
            return perftest.bytes_per_second(lambda: received(b, mtu),
                                             seconds) * 8e-6


def loaded(preload, program, network, arm, case, seconds):
    """
    Milliseconds of small messages there and back while blocks fill the cable, the
    median and the 99th of a hundred; and the Mbit/s of those blocks.
    """
    protocol, ucx_arm = LOADED[arm]
    env = perftest.environment("", preload, ucx_arm, "wire0") if ucx_arm \
        else dict(os.environ)
    env.pop("LD_LIBRARY_PATH", None)  # the UCX of ucxx
    base = [sys.executable, f"{os.path.dirname(__file__)}/load.py"]
    url = f"{protocol}://10.79.0.2:13338"
    with cable(program, network, case) as (a, b), \
            tempfile.TemporaryFile("w+") as said:
        server = run(b, [*base, "serve", url], env, said)
        try:
            client = subprocess.run(
                ["ip", "netns", "exec", a.name, *base, "load", url,
                 str(seconds)], env=env, capture_output=True, text=True,
                timeout=seconds + 60)
            mbit = received(b, case[2]) / seconds * 8e-6
        finally:
            server.kill()
            server.wait()
        if client.returncode:
            said.seek(0)
            raise RuntimeError(f"{arm}, {case}:\n{client.stderr}{said.read()}")
        times = json.loads(client.stdout.splitlines()[-1])
        return times[len(times) // 2] / 1000, \
            times[len(times) * 99 // 100] / 1000, mbit
