# SPDX-License-Identifier: BSD-3-Clause
"""
Hosts of a small network: one network namespace each, joined by veth pairs to
a bridge in a namespace of its own, so that nothing of the machine's network
is touched.  Needs root, or a user namespace in which we are root.
"""
import json
import os
import subprocess

from .tap import Skip

PREFIX = "10.77.0."


def ip(*args):
    done = subprocess.run(["ip", *args], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """with Network(3) as net: net.hosts[0].name, .address; gone afterwards."""

    def __init__(self, count, device="eth0"):
        self.device = device
        self.tag = f"we{os.getpid() % 1000000}"
        self.switch = f"{self.tag}s"
        self.count = count
        self.hosts = []

    def __enter__(self):
        if os.geteuid() != 0:
            raise Skip("network namespaces need root")
        try:
            ip("netns", "add", self.switch)
        except (RuntimeError, FileNotFoundError) as error:
            raise Skip(f"no network namespaces here: {error}")
        try:
            ip("netns", "exec", self.switch, "true")
        except RuntimeError:
            self.__exit__(None, None, None)
            raise Skip("no command can be run in a network namespace here, "
                       "as in a chroot without a mount point") from None
        try:
            ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
            ip("-n", self.switch, "link", "set", "br0", "up")
            for number in range(1, self.count + 1):
                self.hosts.append(Host(self, number))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        for name in [host.name for host in self.hosts] + [self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def add(self):
        self.hosts.append(Host(self, len(self.hosts) + 1))
        return self.hosts[-1]


class Host:
    """
    A namespace with lo and a device, eth0 unless the network's is another; its
    cable is port<n> at the bridge.
    """

    def __init__(self, net, number):
        self.net = net
        self.name = f"{net.tag}h{number}"
        self.address = f"{PREFIX}{number}"
        self.port = f"port{number}"
        ip("netns", "add", self.name)
        self.device = net.device
        ip("link", "add", self.device, "netns", self.name, "type", "veth",
           "peer", "name", self.port, "netns", net.switch)
        ip("-n", net.switch, "link", "set", self.port, "master", "br0", "up")
        ip("-n", self.name, "address", "add", f"{self.address}/24",
           "dev", self.device)
        ip("-n", self.name, "link", "set", "lo", "up")
        ip("-n", self.name, "link", "set", self.device, "up")

    def pull_cable(self):
        """The host vanishes: neither FIN nor RST leaves it any more."""
        ip("-n", self.net.switch, "link", "set", self.port, "down")

    def bytes(self):
        """(sent, received) by its device, as the kernel counts them."""
        stats = json.loads(ip("-n", self.name, "-s", "-j", "link", "show",
                              "dev", self.device))[0]["stats64"]
        return stats["tx"]["bytes"], stats["rx"]["bytes"]
