# SPDX-License-Identifier: BSD-3-Clause
"""One rank over cupy: its own nccl module, or any libnccl.so.2 by ctypes."""
import ctypes
import os
import pickle
import signal
import sys
import time

import cupy

import measure

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
opt = measure.options()
cupy.cuda.Device(rank % cupy.cuda.runtime.getDeviceCount()).use()
stream = cupy.cuda.Stream(non_blocking=True)
INT32, FLOAT64, SUM = 2, 8, 0


def exchange_id(make):
    """Rank 0's unique id reaches the others through a file."""
    path = opt["rendezvous"]
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

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.ncclGetErrorString.restype = ctypes.c_char_p
        version = ctypes.c_int()
        self.call("ncclGetVersion", ctypes.byref(version))
        self.version = version.value
        uid = UniqueId()

        def make():
            self.call("ncclGetUniqueId", ctypes.byref(uid))
            return bytes(uid)
        ctypes.memmove(ctypes.byref(uid), exchange_id(make), 128)
        self.comm = ctypes.c_void_p()
        self.lib.ncclCommInitRank.argtypes = [
            ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
        self.call("ncclCommInitRank", ctypes.byref(self.comm), world, uid,
                  rank)

    def call(self, name, *args):
        rc = getattr(self.lib, name)(*args)
        if rc:
            raise RuntimeError("%s: %s" % (
                name, self.lib.ncclGetErrorString(rc).decode()))

    def op(self, name, src, dst, count, *rest):
        self.call(name, ctypes.c_void_p(src.data.ptr),
                  ctypes.c_void_p(dst.data.ptr), ctypes.c_size_t(count),
                  INT32, *rest, self.comm, ctypes.c_void_p(stream.ptr))

    def all_reduce(self, src, dst):
        self.op("ncclAllReduce", src, dst, src.size, SUM)

    def all_gather(self, src, dst):
        self.op("ncclAllGather", src, dst, src.size)

    def reduce_scatter(self, src, dst):
        self.op("ncclReduceScatter", src, dst, dst.size, SUM)

    def broadcast(self, src, dst):
        self.op("ncclBroadcast", src, dst, src.size, 0)

    def send_recv(self, src, dst):
        self.call("ncclGroupStart")
        for name, buf, peer in (("ncclSend", src, rank + 1),
                                ("ncclRecv", dst, rank - 1)):
            self.call(name, ctypes.c_void_p(buf.data.ptr),
                      ctypes.c_size_t(buf.size), INT32, peer % world,
                      self.comm, ctypes.c_void_p(stream.ptr))
        self.call("ncclGroupEnd")

    def error(self):
        rc = ctypes.c_int()
        self.call("ncclCommGetAsyncError", self.comm, ctypes.byref(rc))
        return rc.value

    def abort(self):
        self.call("ncclCommAbort", self.comm)

    def close(self):
        self.call("ncclCommDestroy", self.comm)


def values(who, count, seed):
    i = cupy.arange(count, dtype=cupy.int32)
    return (i * 7 + who * 1013 + seed * 31) % 997


def operands(op, count):
    part = max(count // world, 1)
    if op == "all_gather":
        return (values(rank, part, count), part * world,
                cupy.concatenate([values(r, part, count)
                                  for r in range(world)]))
    if op == "reduce_scatter":
        whole = sum(values(r, part * world, count) for r in range(world))
        return (values(rank, part * world, count), part,
                whole[rank * part:(rank + 1) * part])
    mine = values(rank, count, count)
    if op == "all_reduce":
        return mine, count, sum(values(r, count, count)
                                for r in range(world))
    if op == "broadcast":
        return mine, count, values(0, count, count)
    return mine, count, values((rank - 1) % world, count, count)


def barrier():
    one = cupy.ones(1, dtype=cupy.int32)
    cupy.cuda.Device().synchronize()
    net.all_reduce(one, one)
    stream.synchronize()


def bench():
    timer = measure.Timer(stream.synchronize, barrier)
    for op in opt["ops"]:
        for size in opt["sizes"]:
            src, out, want = operands(op, max(size // 4, 1))
            dst = cupy.full(out, -1, dtype=cupy.int32)
            cupy.cuda.Device().synchronize()
            call = getattr(net, op)
            call(src, dst)
            stream.synchronize()
            bad = cupy.asarray([int((dst != want).sum())], dtype=cupy.int32)
            cupy.cuda.Device().synchronize()
            warm, count = measure.rounds(size)
            count *= opt.get("repeat", 1)
            seconds, cpu = timer(lambda: call(src, dst), warm, count)
            # the last of many rounds, into a buffer that was right before
            bad += int((dst != want).sum())
            cupy.cuda.Device().synchronize()
            net.all_reduce(bad, bad)
            stream.synchronize()
            if rank == 0:
                measure.row(op, size, world, seconds, cpu, int(bad[0]))


def killed():
    """The last rank dies in the middle; the others must be told in time."""
    buf = cupy.ones(16 << 20, dtype=cupy.int32)
    cupy.cuda.Device().synchronize()
    net.all_reduce(buf, buf)
    stream.synchronize()
    for _ in range(5):
        net.all_reduce(buf, buf)
    if rank == world - 1:
        os.kill(os.getpid(), signal.SIGKILL)
        os._exit(9)     # process 1 of a pod is immune to its own signal
    start = time.time()
    net.all_reduce(buf, buf)
    while not net.error() and time.time() < start + opt["timeout"] / 2:
        time.sleep(0.01)
    told = time.time() - start
    code = net.error()
    net.abort()
    if rank == 0:
        measure.report(kill_error=code, kill_told_s=told,
                       kill_abort_s=time.time() - start - told)


net = Raw(opt["nccl"]) if opt.get("nccl") else Cupy()
if rank == 0:
    measure.report(nccl=str(net.version))
if opt.get("kill"):
    killed()
else:
    bench()
    barrier()
    net.close()
