# SPDX-License-Identifier: BSD-3-Clause
"""
Runs a command in a network namespace of its own, with a cable (a veth pair) to
this one: where there is no `ip`, as in most images with a GPU driver.

  pod_net.py NAME COMMAND...     interfaces NAME0 here, 10.78.N.1, and NAME1
                                 there, 10.78.N.2, where NAME ends with the number
                                 N, or 0
  pod_net.py wait NAME COMMAND...  runs it here, once the cable is there
  pod_net.py remove NAME         takes the cable away, where there is one: sockets
                                 that still have data for a peer keep a namespace,
                                 and with it the cable, after the command's end

Layouts: linux/rtnetlink.h, linux/if_link.h, linux/veth.h.  Needs root.
"""
import ctypes
import errno
import fcntl
import os
import socket
import struct
import sys
import time

NEWLINK, DELLINK, NEWADDR, NEWROUTE = 16, 17, 20, 24
REQUEST, ACK, EXCL, CREATE = 1, 4, 0x200, 0x400
IFLA_IFNAME, IFLA_LINKINFO, IFLA_NET_NS_FD = 3, 18, 28
INFO_KIND, INFO_DATA, VETH_INFO_PEER = 1, 2, 1
IFA_ADDRESS, IFA_LOCAL = 1, 2
RTA_GATEWAY, TABLE_MAIN, BY_BOOT, UNICAST = 5, 254, 3, 1
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
HERE, THERE = "10.78.%s.1", "10.78.%s.2"


CLONE_NEWNET = 0x40000000


def namespace(call, *args):
    """unshare or setns, which Python has from 3.12 on alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, call)(*args):
        raise OSError(ctypes.get_errno(), call)


def attribute(kind, data):
    size = 4 + len(data)
    return struct.pack("HH", size, kind) + data + bytes(-size % 4)


def ask(kind, flags, body):
    """One request to the kernel; its answer is an error number."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        link.send(struct.pack("IHHII", 16 + len(body), kind,
                              REQUEST | ACK | flags, 1, 0) + body)
        answer = link.recv(65536)
    error = -struct.unpack_from("i", answer, 16)[0]
    if error:
        raise OSError(error, os.strerror(error))


def ifinfo():
    return struct.pack("BxHiII", 0, 0, 0, 0, 0)


def make_pair(mine, theirs, where):
    peer = ifinfo() + attribute(IFLA_IFNAME, theirs.encode() + b"\0") + \
        attribute(IFLA_NET_NS_FD, struct.pack("i", where))
    info = attribute(INFO_KIND, b"veth") + \
        attribute(INFO_DATA, attribute(VETH_INFO_PEER, peer))
    ask(NEWLINK, CREATE | EXCL, ifinfo() +
        attribute(IFLA_IFNAME, mine.encode() + b"\0") +
        attribute(IFLA_LINKINFO, info))


def remove(name):
    """The other end goes with it."""
    try:
        ask(DELLINK, 0, ifinfo() +
            attribute(IFLA_IFNAME, name.encode() + b"\0"))
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise


def set_address(name, address):
    raw = socket.inet_aton(address)
    ask(NEWADDR, CREATE | EXCL,
        struct.pack("BBBBi", socket.AF_INET, 24, 0, 0,
                    socket.if_nametoindex(name)) +
        attribute(IFA_LOCAL, raw) + attribute(IFA_ADDRESS, raw))


def set_gateway(address):
    ask(NEWROUTE, CREATE | EXCL,
        struct.pack("8BI", socket.AF_INET, 0, 0, 0, TABLE_MAIN, BY_BOOT, 0,
                    UNICAST, 0) +
        attribute(RTA_GATEWAY, socket.inet_aton(address)))


def set_up(name, up=True):
    """Down: neither end hears a FIN or a RST."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", name.encode(), 0)
        request = fcntl.ioctl(any_socket, SIOCGIFFLAGS, request)
        flags = struct.unpack_from("H", request, 16)[0]
        flags = flags | IFF_UP if up else flags & ~IFF_UP
        fcntl.ioctl(any_socket, SIOCSIFFLAGS,
                    struct.pack("16sH14x", name.encode(), flags))


def wait(name):
    end = time.time() + 20
    while time.time() < end:
        try:
            with open("/sys/class/net/%s/operstate" % name) as f:
                if f.read() == "up\n":
                    return
        except OSError:
            pass
        time.sleep(0.05)
    sys.exit("no interface %s that is up" % name)


def enter(outside, inside, number):
    """A namespace of its own, by a cable whose ends are called so."""
    host = os.open("/proc/self/ns/net", os.O_RDONLY)
    namespace("unshare", CLONE_NEWNET)
    mine = os.open("/proc/self/ns/net", os.O_RDONLY)
    make_pair(inside, outside, host)
    set_address(inside, THERE % number)
    set_up(inside)
    set_up("lo")
    namespace("setns", host, CLONE_NEWNET)
    set_address(outside, HERE % number)
    set_up(outside)
    namespace("setns", mine, CLONE_NEWNET)


def main():
    if len(sys.argv) < 3 + (sys.argv[1:2] == ["wait"]):
        sys.exit(__doc__)
    if sys.argv[1] == "remove":
        return remove(sys.argv[2] + "0")
    if sys.argv[1] == "wait":
        wait(sys.argv[2] + "0")
        os.execvp(sys.argv[3], sys.argv[3:])
    name, command = sys.argv[1], sys.argv[2:]
    number = name[len(name.rstrip("0123456789")):] or "0"
    enter(name + "0", name + "1", number)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
