# SPDX-License-Identifier: BSD-3-Clause
"""
One rank of tests/gpu/nccl/cases.py: what a program does with its communicators, and
how it dies.  What this release of NCCL does not have is reported as skipped.
"""
import ctypes
import os
import sys
import threading
import time

import cupy

import rows
from kernels import check, fill
from raw_nccl import Raw, UniqueId, exchange_id, opt, rank, stream, world

SIZES = [8, 65540, (1 << 20) + 4, 8 << 20, 64 << 20]
SYMMETRIC, SUSPEND_MEMORY, NO_COLOR = 1, 1, -1
bad = cupy.zeros(1, dtype=cupy.uint64)


def wants(*names):
    lib = ctypes.CDLL(opt["nccl"])
    for name in names:
        if not hasattr(lib, name):
            version = ctypes.c_int()
            lib.ncclGetVersion(ctypes.byref(version))
            report(skipped="NCCL %d has no %s" % (version.value, name))
            sys.exit(0)


def report(**row):
    rows.report(case=opt["case"], bad=int(bad[0]), **row)


def moves(net, src, dst, turns=8):
    """Operations whose values change; kernels compare all that arrives."""
    cupy.cuda.Device().synchronize()
    for turn in range(turns):
        fill(src, net.rank, turn)
        fill(dst, -1, turn)
        net.all_reduce(src, dst)
        check(dst, bad, turn, ranks=net.world)
        if net.world == 1:
            continue
        fill(dst, -1, turn)
        net.send_recv(src, dst)
        check(dst, bad, turn, who=(net.rank - 1) % net.world)
    stream.synchronize()
    return 2 * turns


def proves(net):
    return sum(moves(net, cupy.empty(size // 4, dtype=cupy.int32),
                     cupy.empty(size // 4, dtype=cupy.int32))
               for size in SIZES)


def split():
    wants("ncclCommSplit")
    net = Raw(opt["nccl"])
    n = proves(net)
    turned = net.made("ncclCommSplit", net.comm, 0, -rank)
    alone = net.made("ncclCommSplit", net.comm, 5 + rank, 0)
    some = net.made("ncclCommSplit", net.comm, NO_COLOR if rank else 0, 0)
    if turned.rank != world - 1 - rank or alone.world != 1 or \
            bool(some) != (rank == 0):
        sys.exit("ranks are not as asked for")
    for comm in filter(None, (turned, alone, some, net)):
        n += proves(comm)
    for comm in filter(None, (turned, alone, some, net)):
        comm.close()
    report(operations=n)


def shrink():
    """The last rank goes; what is left works on."""
    wants("ncclCommShrink")
    net = Raw(opt["nccl"])
    n = proves(net)
    if rank < world - 1:
        out = (ctypes.c_int * 1)(world - 1)
        less = net.made("ncclCommShrink", net.comm, out, 1, after=(None, 0))
        n += proves(less)
        less.close()
    net.close()
    report(operations=n)


def grow():
    """From rank 0 by itself to all."""
    wants("ncclCommGrow", "ncclCommGetUniqueId")
    net = Raw(opt["nccl"], ".one%d" % rank, 1) if rank == 0 else None
    lib = net or Library()
    uid = UniqueId()

    def make():
        lib.call("ncclCommGetUniqueId", net.comm, ctypes.byref(uid))
        return bytes(uid)
    ctypes.memmove(ctypes.byref(uid), exchange_id(make, ".grow"), 128)
    more = lib.made("ncclCommGrow", net.comm if net else None, world,
                    ctypes.byref(uid), -1 if net else rank)
    if (more.rank, more.world) != (rank, world):
        sys.exit("rank %d of %d" % (more.rank, more.world))
    n = proves(more)
    more.close()
    if net:
        net.close()
    report(operations=n)


class Library(Raw):
    """Without a communicator yet."""

    def __init__(self):
        self.stream = stream
        self.lib = ctypes.CDLL(opt["nccl"])
        self.lib.ncclGetErrorString.restype = ctypes.c_char_p


def revoke():
    """An operation that the others never join ends; then a split works."""
    wants("ncclCommRevoke", "ncclCommSplit")
    net = Raw(opt["nccl"])
    n = proves(net)
    if rank == 0:
        buf = cupy.zeros(1 << 18, dtype=cupy.int32)
        cupy.cuda.Device().synchronize()
        net.all_reduce(buf, buf)
    net.call("ncclCommRevoke", net.comm, 0)
    while net.error() and time.time() < limit:
        time.sleep(0.01)
    stream.synchronize()
    new = net.made("ncclCommSplit", net.comm, 0, rank)
    n += proves(new)
    new.close()
    net.close()
    report(operations=n)


def used():
    free, total = cupy.cuda.runtime.memGetInfo()
    return total - free


def suspend():
    wants("ncclCommSuspend", "ncclCommResume")
    net = Raw(opt["nccl"])
    n, freed = proves(net), 0
    for _ in range(3):
        before = used()
        net.call("ncclCommSuspend", net.comm, SUSPEND_MEMORY)
        freed = before - used()
        net.call("ncclCommResume", net.comm)
        n += proves(net)
    net.close()
    report(operations=n, freed_mib=freed >> 20)


class Memory:
    """ncclMemAlloc()'s, as an array."""

    def __init__(self, net, size):
        self.net, self.at = net, ctypes.c_void_p()
        net.call("ncclMemAlloc", ctypes.byref(self.at), ctypes.c_size_t(size))
        block = cupy.cuda.UnownedMemory(self.at.value, size, self)
        self.array = cupy.ndarray(size // 4, dtype=cupy.int32,
                                  memptr=cupy.cuda.MemoryPointer(block, 0))

    def free(self):
        self.array = None
        self.net.call("ncclMemFree", self.at)


def registered(enter, leave, *flags):
    """Buffers that NCCL knows, whole and in part."""
    wants("ncclMemAlloc", enter)
    net, n = Raw(opt["nccl"]), 0
    size = 64 << 20
    both, handles = [Memory(net, size) for _ in range(2)], []
    for memory in both:
        handles.append(ctypes.c_void_p())
        net.call(enter, net.comm, memory.at, ctypes.c_size_t(size),
                 ctypes.byref(handles[-1]), *flags)
    for count in (2, 16384, 16385, 1 << 20, size // 4):
        n += moves(net, both[0].array[:count], both[1].array[:count], 30)
    for handle in handles:
        # 2.19 gives none where there is no multicast, and refuses that one
        if handle:
            net.call(leave, net.comm, handle)
    n += moves(net, both[0].array, both[1].array)
    for memory in both:
        memory.free()
    net.close()
    report(operations=n)


def register():
    registered("ncclCommRegister", "ncclCommDeregister")


def window():
    registered("ncclCommWindowRegister", "ncclCommWindowDeregister",
               SYMMETRIC)


def ends(fn, seconds):
    """Whether fn() comes back in time."""
    thread = threading.Thread(target=fn, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def die():
    """SIGKILL; process 1 of a pod is immune to its own."""
    os.kill(os.getpid(), 9)
    os._exit(9)


def killed():
    """The last rank dies; what becomes of the others?"""
    last = rank == world - 1
    if opt["when"] == "start":
        if last:
            threading.Timer(opt["after"], die).start()
        began = ends(lambda: Raw(opt["nccl"]), 8)
        if last:
            time.sleep(30)
        return report(began=began)
    net = Raw(opt["nccl"])
    n = proves(net)
    if opt["when"] == "end":
        if last:
            die()
        time.sleep(1)
        return report(operations=n, ended=ends(net.close, 15))
    buf = cupy.zeros(16 << 20, dtype=cupy.int32)
    cupy.cuda.Device().synchronize()
    for turn in range(200):
        net.all_reduce(buf, buf)
        if last and turn == 100:
            die()
    time.sleep(3)
    report(operations=n, told=net.error(), ended=ends(net.abort, 15))


limit = time.time() + opt["timeout"] - 10
{"split": split, "shrink": shrink, "grow": grow, "revoke": revoke,
 "suspend": suspend, "register": register, "window": window,
 "killed": killed}[opt["case"]]()
if opt["case"] == "killed":
    sys.stdout.flush()
    os._exit(0)     # what hangs must not hold the process
