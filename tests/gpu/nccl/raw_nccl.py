# SPDX-License-Identifier: BSD-3-Clause
"""NCCL over cupy: its own module, or any libnccl.so.2 by ctypes."""
import copy
import ctypes
import os
import pickle
import sys
import time

import cupy

import rows

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
opt = rows.options()
cupy.cuda.Device(rank % cupy.cuda.runtime.getDeviceCount()).use()
stream = cupy.cuda.Stream(non_blocking=True)
INT32, SUM = 2, 0


def exchange_id(make, name=""):
    """Rank 0's unique id reaches the others through a file."""
    path = opt["rendezvous"] + name
    if rank == 0:
        uid = make()
        with open(path + ".new", "wb") as f:
            f.write(uid)
        os.rename(path + ".new", path)
        return uid
    end = time.time() + opt["timeout"]
    while not os.path.exists(path):
        if time.time() > end:
            sys.exit("no unique id from rank 0")
        time.sleep(0.01)
    with open(path, "rb") as f:
        return f.read()


class Cupy:
    """cupy.cuda.nccl, as a program uses it."""

    def __init__(self):
        from cupy.cuda import nccl
        if not nccl.available:
            sys.exit("cupy.cuda.nccl found no libnccl.so.2 that it can use; "
                     "what it tried is in the warning above")
        self.nccl = nccl
        self.version = nccl.get_version()
        # The id is a tuple of signed chars up to CuPy 13 and bytes since, and
        # the communicator takes no other form than its own.
        uid = exchange_id(lambda: pickle.dumps(nccl.get_unique_id()))
        self.comm = nccl.NcclCommunicator(world, pickle.loads(uid), rank)

    def all_reduce(self, src, dst):
        self.comm.allReduce(src.data.ptr, dst.data.ptr, src.size, INT32, SUM,
                            stream.ptr)

    def all_gather(self, src, dst):
        self.comm.allGather(src.data.ptr, dst.data.ptr, src.size, INT32,
                            stream.ptr)

    def reduce_scatter(self, src, dst):
        self.comm.reduceScatter(src.data.ptr, dst.data.ptr, dst.size, INT32,
                                SUM, stream.ptr)

    def broadcast(self, src, dst):
        self.comm.broadcast(src.data.ptr, dst.data.ptr, src.size, INT32, 0,
                            stream.ptr)

    def send_recv(self, src, dst):
        self.nccl.groupStart()
        self.comm.send(src.data.ptr, src.size, INT32, (rank + 1) % world,
                       stream.ptr)
        self.comm.recv(dst.data.ptr, dst.size, INT32, (rank - 1) % world,
                       stream.ptr)
        self.nccl.groupEnd()

    def error(self):
        return 0

    def close(self):
        self.comm.destroy()


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class Raw:
    """A libnccl.so.2 of any release, through its C interface."""

    def __init__(self, path, name="", ranks=world):
        """@name: of its meeting, where there are several communicators."""
        self.stream, self.rank, self.world = stream, rank, ranks
        self.lib = ctypes.CDLL(path)
        self.lib.ncclGetErrorString.restype = ctypes.c_char_p
        version = ctypes.c_int()
        self.call("ncclGetVersion", ctypes.byref(version))
        self.version = version.value
        uid = UniqueId()

        def make():
            self.call("ncclGetUniqueId", ctypes.byref(uid))
            return bytes(uid)
        ctypes.memmove(ctypes.byref(uid), exchange_id(make, name), 128)
        self.comm = ctypes.c_void_p()
        self.lib.ncclCommInitRank.argtypes = [
            ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
        self.call("ncclCommInitRank", ctypes.byref(self.comm), ranks, uid,
                  rank)

    def made(self, name, *before, after=(None,)):
        """One more communicator, which @name makes, or None."""
        new = copy.copy(self)
        new.comm = ctypes.c_void_p()
        self.call(name, *before, ctypes.byref(new.comm), *after)
        if not new.comm:
            return None
        for what, call in (("rank", "ncclCommUserRank"),
                           ("world", "ncclCommCount")):
            n = ctypes.c_int()
            self.call(call, new.comm, ctypes.byref(n))
            setattr(new, what, n.value)
        return new

    def call(self, name, *args):
        rc = getattr(self.lib, name)(*args)
        if rc:
            raise RuntimeError("%s: %s" % (
                name, self.lib.ncclGetErrorString(rc).decode()))

    def op(self, name, src, dst, count, *rest):
        self.call(name, ctypes.c_void_p(src.data.ptr),
                  ctypes.c_void_p(dst.data.ptr), ctypes.c_size_t(count),
                  INT32, *rest, self.comm, ctypes.c_void_p(self.stream.ptr))

    def all_reduce(self, src, dst):
        self.op("ncclAllReduce", src, dst, src.size, SUM)

    def all_gather(self, src, dst):
        self.op("ncclAllGather", src, dst, src.size)

    def reduce_scatter(self, src, dst):
        self.op("ncclReduceScatter", src, dst, dst.size, SUM)

    def broadcast(self, src, dst):
        self.op("ncclBroadcast", src, dst, src.size, 0)

    def p2p(self, name, buf, peer):
        self.call(name, ctypes.c_void_p(buf.data.ptr),
                  ctypes.c_size_t(buf.size), INT32, peer % self.world,
                  self.comm, ctypes.c_void_p(self.stream.ptr))

    def send_recv(self, src, dst):
        self.call("ncclGroupStart")
        self.p2p("ncclSend", src, self.rank + 1)
        self.p2p("ncclRecv", dst, self.rank - 1)
        self.call("ncclGroupEnd")

    def all_to_all(self, src, dst):
        """As torch does it: ncclAlltoAll is of 2.28."""
        part = src.size // self.world
        self.call("ncclGroupStart")
        for peer in range(self.world):
            piece = slice(peer * part, (peer + 1) * part)
            self.p2p("ncclSend", src[piece], peer)
            self.p2p("ncclRecv", dst[piece], peer)
        self.call("ncclGroupEnd")

    def error(self):
        rc = ctypes.c_int()
        self.call("ncclCommGetAsyncError", self.comm, ctypes.byref(rc))
        return rc.value

    def abort(self):
        self.call("ncclCommAbort", self.comm)

    def close(self):
        self.call("ncclCommDestroy", self.comm)
