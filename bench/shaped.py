# SPDX-License-Identifier: BSD-3-Clause
"""
The same between two hosts, a veth pair with HTB: a cable that has a rate, or
one that gives each flow its own share: a class per pair of port numbers (three
bits of each, but not the last: the kernel dials from ports of one parity), as
a network of many paths treats flows.  What arrives is counted by the kernel,
not by the program.
"""
import subprocess
import time

import perftest

RATE_MBIT = 400
STALLED_KBIT = 64
BITS = 8  # classes per port
# Of all flows together: Mbit/s, MTU
LINKS = ((1000, 1500), (10000, 1500), (10000, 9000), (25000, 1500),
         (25000, 9000))
LINK_ARMS = ("tcp", "tcp, 64k segments", "weft_tcp")

# (name, arm, settings, is one flow to be stalled?)
CASES = (
    ("one flow, UCX's tcp", "tcp", {}, False),
    ("one flow, weft", "weft_tcp", {"WEFT_TCP_STREAMS": "1"}, False),
    ("four flows, weft", "weft_tcp", {"WEFT_TCP_STREAMS": "4"}, False),
    ("as many as weft finds", "weft_tcp", {}, False),
    ("one of four stalled, weft", "weft_tcp", {"WEFT_TCP_STREAMS": "4"},
     True),
)


def tc(host, *words):
    subprocess.run(["tc", "-n", host.name, *words], check=True,
                   capture_output=True)


def shape(host):
    tc(host, "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb",
       "default", "ff", "r2q", "1000")
    tc(host, "class", "add", "dev", "eth0", "parent", "1:", "classid",
       "1:ff", "htb", "rate", "1gbit")
    for source in range(BITS):
        for dest in range(BITS):
            flow = f"1:{source * BITS + dest + 1:x}"
            tc(host, "class", "add", "dev", "eth0", "parent", "1:",
               "classid", flow, "htb", "rate", f"{RATE_MBIT}mbit",
               "burst", "64k", "cburst", "64k")
            tc(host, "filter", "add", "dev", "eth0", "parent", "1:",
               "protocol", "ip", "prio", "9", "u32",
               "match", "ip", "protocol", "6", "0xff",
               "match", "ip", "sport", str(source << 1), "0x000e",
               "match", "ip", "dport", str(dest << 1), "0x000e",
               "flowid", flow)


def shape_all(host, mbit, mtu):
    for where, device in ((host.name, "eth0"), (host.net.switch, host.port)):
        subprocess.run(["ip", "-n", where, "link", "set", device, "mtu",
                        str(mtu)], check=True)
    tc(host, "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb",
       "default", "1", "r2q", "10000")
    tc(host, "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:1",
       "htb", "rate", f"{mbit}mbit", "burst", "256k", "cburst", "256k")


def busiest(host):
    """The ports (here, there) of the flow that has sent most."""
    out = subprocess.run(["ip", "netns", "exec", host.name, "ss", "-tniH",
                          "state", "established"], check=True,
                         capture_output=True, text=True).stdout
    best, ports = 0, None
    lines = out.splitlines()
    for head, info in zip(lines, lines[1:]):
        sent = [int(word.split(":")[1]) for word in info.split()
                if word.startswith("bytes_sent:")]
        if sent and sent[0] > best:
            best = sent[0]
            ports = [end.rsplit(":", 1)[1] for end in head.split()[2:4]]
    return ports


def stall(host, ports):
    tc(host, "class", "add", "dev", "eth0", "parent", "1:", "classid",
       "1:fe", "htb", "rate", f"{STALLED_KBIT}kbit", "burst", "2k")
    tc(host, "filter", "add", "dev", "eth0", "parent", "1:", "protocol",
       "ip", "prio", "1", "u32", "match", "ip", "sport", ports[0], "0xffff",
       "match", "ip", "dport", ports[1], "0xffff", "flowid", "1:fe")


def rate(ucx, preload, network, case, seconds):
    """MB/s that arrive at the second host, over @seconds in mid-run."""
    name, arm, extra, stalled = case
    with network(2) as net:
        for host in net.hosts:
            shape(host)
        return arriving(net.hosts, ucx, preload, (name, arm, extra), seconds,
                        stall if stalled else None)


def link_rate(ucx, preload, network, link, arm, seconds):
    """The same over a cable with a rate, as a part of that."""
    with network(2) as net:
        for host in net.hosts:
            shape_all(host, *link)
        return arriving(net.hosts, ucx, preload, (arm, arm, {}), seconds,
                        None) * 8 / link[0]


def arriving(hosts, ucx, preload, case, seconds, meanwhile):
    name, arm, extra = case
    a, b = hosts
    env = perftest.environment(ucx, preload, arm, "eth0")
    env.update(extra)
    base = [f"{ucx}/bin/ucx_perftest", "-p", "13337", "-E", "sleep"]
    prefix = ["ip", "netns", "exec"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def start(host, *options):
        return subprocess.Popen([*prefix, host.name, *base, *options], env=env,
                                **quiet)

    def received():
        return b.bytes()[1]

    with perftest.flowing(
            lambda: start(b),
            lambda: start(a, b.address, "-t", "tag_bw", "-s", str(1 << 20),
                          "-n", "10000000", "-w", "1"),
            received, 20 << 20, 30, lambda: f"{name}: nothing flows"):
        if meanwhile:
            meanwhile(a, busiest(a))
        time.sleep(1)  # what was under way before
        return perftest.bytes_per_second(received, seconds) / 1e6
