# SPDX-License-Identifier: BSD-3-Clause
"""
Hosts of a small network: one network namespace each, joined by veth pairs to
a bridge in a namespace of its own, so that nothing of the machine's network
is touched.  A process of a host has host name and mounts of its own, too.
Needs root, or a user namespace in which we are root.
"""
import json
import os
import shutil
import subprocess
import tempfile

from .tap import Skip

PREFIX = "10.77.0."
HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.dirname(os.path.dirname(os.environ.get("E2E_WEFT", "")))

# What a process finds on its host: the names of all, a folder to meet in that no
# other host has, and an adapter if asked.
ENTER = """
echo "$1" >/proc/sys/kernel/hostname
mount --bind "$2/hosts" /etc/hosts
export WEFT_RUN_DIR=${WEFT_RUN_DIR-$2/run-$1}
mkdir -p "$WEFT_RUN_DIR"
if test -n "$3"; then
	. "$4/verbs.sh"
	WEFT_BUILD=$6
	verbs_netdev=$3 verbs_gid=$5 verbs_name=mlx5_
	verbs_setup "$2"
	export LD_LIBRARY_PATH=$verbs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
exec "${@:7}"
"""


def ip(*args):
    done = subprocess.run(["ip", *args], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """
    with Network(3) as net: net.hosts[0].name, .address; gone afterwards.

    @device: what the hosts call their network interface.  @verbs: beside it
    each has the ports mlx5_0:1 and mlx5_1:1 of a fake adapter.
    """

    def __init__(self, count, device="eth0", verbs=False):
        self.tag = f"we{os.getpid() % 1000000}"
        self.switch = f"{self.tag}s"
        self.count = count
        self.device = device
        self.verbs = verbs
        self.folder = None
        self.hosts = []

    def __enter__(self):
        if os.geteuid() != 0:
            raise Skip("network namespaces need root")
        if self.verbs and not os.path.exists(
                f"{BUILD}/tests/lib/.libs/libfake_verbs.so"):
            raise Skip("no fake adapter: built without rdma-core's headers, "
                       "or without make check")
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
            self.folder = tempfile.mkdtemp(prefix="weft-e2e.")
            ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
            ip("-n", self.switch, "link", "set", "br0", "up")
            for _ in range(self.count):
                self.add()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_):
        for name in [host.name for host in self.hosts] + [self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def add(self):
        self.hosts.append(Host(self, len(self.hosts) + 1))
        with open(f"{self.folder}/hosts", "w") as file:
            file.write("127.0.0.1 localhost\n")
            file.writelines(f"{host.address} {host.name}\n"
                            for host in self.hosts)
        return self.hosts[-1]


class Host:
    """
    A namespace with lo and a device, eth0 unless the network's is another; its
    cable is port<n> at the bridge.
    """

    def __init__(self, net, number):
        self.net = net
        self.name = f"{net.tag}h{number}"
        self.number = number
        self.address = f"{PREFIX}{number}"
        self.port = f"port{number}"
        ip("netns", "add", self.name)
        ip("link", "add", net.device, "netns", self.name, "type", "veth",
           "peer", "name", self.port, "netns", net.switch)
        ip("-n", net.switch, "link", "set", self.port, "master", "br0", "up")
        ip("-n", self.name, "address", "add", f"{self.address}/24",
           "dev", net.device)
        ip("-n", self.name, "link", "set", "lo", "up")
        ip("-n", self.name, "link", "set", net.device, "up")

    def command(self, argv):
        """@argv on this host, in the process that is started."""
        verbs = self.net.device if self.net.verbs else ""
        return ["ip", "netns", "exec", self.name, "unshare", "-u", "bash",
                "-ec", ENTER, "bash", self.name, self.net.folder, verbs,
                os.path.abspath(f"{HERE}/../../lib"),
                f"0a4d:{self.number:02x}", BUILD, *argv]

    def pull_cable(self):
        """The host vanishes: neither FIN nor RST leaves it any more."""
        ip("-n", self.net.switch, "link", "set", self.port, "down")

    def bytes(self):
        """(sent, received) by the cable, as the kernel counts them."""
        stats = json.loads(ip("-n", self.name, "-s", "-j", "link", "show",
                              "dev", self.net.device))[0]["stats64"]
        return stats["tx"]["bytes"], stats["rx"]["bytes"]
