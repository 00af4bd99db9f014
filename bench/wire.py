# SPDX-License-Identifier: BSD-3-Clause
"""
The same over a cable that loses frames and takes its time: wire.c between two
hosts.
"""
import contextlib
import os
import subprocess
import tempfile
import time

import perftest

MBIT = int(os.environ.get("WEFT_BENCH_MBIT", "1000"))
ARMS = ("a socket", "tcp", "weft_tcp")
# One way in us; of a million frames; MTU
CASES = ((50, 0, 1500), (500, 0, 1500), (5000, 0, 1500), (5000, 0, 9000),
         (5000, 1000, 1500), (5000, 10000, 1500))
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


def goodput(ucx, preload, program, network, arm, case, seconds):
    """Mbit/s of data that arrive at the second host, in mid-run."""
    if arm == "a socket":
        env, server, client = None, ["python3", "-c", SERVER], \
            ["python3", "-c", CLIENT, "10.79.0.2"]
    else:
        env = perftest.environment(ucx, preload, arm, "wire0")
        server = [f"{ucx}/bin/ucx_perftest", "-p", "13337"]
        client = [*server, "10.79.0.2", "-t", "tag_bw", "-s", str(1 << 20),
                  "-n", "1000000", "-w", "1"]
    mtu = case[2]
    enter = ["ip", "netns", "exec"]
    with cable(program, network, case) as (a, b), \
            tempfile.TemporaryFile("w+") as said:
        processes = [subprocess.Popen([*enter, b.name, *server], env=env,
                                      stdout=said, stderr=said)]
        try:
            deadline = time.monotonic() + 60
            while received(b, mtu) < (4 << 20):
                if len(processes) == 1 or processes[-1].poll() is not None:
                    processes.append(subprocess.Popen(
                        [*enter, a.name, *client], env=env, stdout=said,
                        stderr=said))
                if time.monotonic() > deadline:
                    said.seek(0)
                    raise RuntimeError(f"{arm}, {case}: nothing flows\n"
                                       f"{said.read()}")
                time.sleep(0.2)
            time.sleep(SETTLE)
            first, at = received(b, mtu), time.monotonic()
            time.sleep(seconds)
            return (received(b, mtu) - first) / (time.monotonic() - at) * 8e-6
        finally:
            for process in processes:
                process.kill()
                process.wait()
