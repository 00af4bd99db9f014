# SPDX-License-Identifier: BSD-3-Clause
"""One rank of tests/gpu/nccl/cases.py: what is right, not how fast it is."""
import ctypes
import os
import random
import sys
import time

import cupy

import rows
from kernels import check, fill, shape
from raw_nccl import INT32, SUM, Raw, opt, rank, stream, world

def visible():
    """
    Values change with every round, the target is poisoned, and a kernel behind
    NCCL's on the same stream compares: the host does not wait in between.
    """
    total = 0
    bad = cupy.zeros(1, dtype=cupy.uint64)
    for op in rows.OPS:
        call = getattr(net, op)
        for size, rounds in opt["visible"]:
            into, out, want = shape(op, max(size // 4, 1))
            src = cupy.empty(into, dtype=cupy.int32)
            dst = cupy.empty(out, dtype=cupy.int32)
            cupy.cuda.Device().synchronize()
            for turn in range(rounds):
                fill(src, rank, turn)
                fill(dst, -1, turn)
                call(src, dst)
                check(dst, bad, turn, **want)
            stream.synchronize()
            total += rounds
    rows.report(case="visible", rounds=total, bad=int(bad[0]))


def chance():
    """
    Collectives of all kinds and sizes at addresses of all alignments, the same on
    all ranks; a kernel compares behind each.
    """
    draw = random.Random(opt["seed"])
    most, bad = 1 << 24, cupy.zeros(1, dtype=cupy.uint64)
    source = cupy.empty(most + 64, dtype=cupy.int32)
    target = cupy.empty_like(source)
    carried = 0
    cupy.cuda.Device().synchronize()
    for turn in range(opt["chance"]):
        op = draw.choice(rows.OPS)
        count = int(2 ** draw.uniform(3, 23.9))
        at, to = draw.randrange(64), draw.randrange(64)
        into, out, want = shape(op, count)
        src, dst = source[at:at + into], target[to:to + out]
        fill(src, rank, turn)
        fill(dst, -1, turn)
        getattr(net, op)(src, dst)
        check(dst, bad, turn, **want)
        carried += 4 * out
        if turn % 50 == 49:
            stream.synchronize()
    stream.synchronize()
    rows.report(case="chance", rounds=opt["chance"], seed=opt["seed"],
                gb=round(carried / 1e9, 1), bad=int(bad[0]))


LARGE = 200


def graph():
    """A graph is captured while another communicator's traffic flows."""
    other = Raw(opt["nccl"], ".graph")
    other.stream = cupy.cuda.Stream(non_blocking=True)
    small = cupy.empty(1 << 18, dtype=cupy.int32)
    result = cupy.empty_like(small)
    large = cupy.empty(16 << 20, dtype=cupy.int32)
    sums = cupy.empty_like(large)
    bad = cupy.zeros(1, dtype=cupy.uint64)
    cupy.cuda.Device().synchronize()
    other.all_reduce(small, result)     # connects
    other.stream.synchronize()
    for turn in range(LARGE):
        fill(large, rank, turn)
        net.all_reduce(large, sums)
        check(sums, bad, turn)
    flowing = not stream.done
    other.stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
    other.all_reduce(small, result)
    captured = other.stream.end_capture()
    flowing = flowing and not stream.done
    stream.synchronize()
    for turn in range(200):
        fill(small, rank, turn, other.stream)
        fill(result, -1, turn, other.stream)
        captured.launch(other.stream)
        check(result, bad, turn, on=other.stream)
    other.stream.synchronize()
    del captured
    other.close()
    rows.report(case="graph", rounds=LARGE + 200, bad=int(bad[0]),
                   flowing=bool(flowing))


def nap():
    """One rank computes for a minute; the others wait in a collective."""
    src = cupy.ones(1 << 20, dtype=cupy.int32)
    dst = cupy.zeros_like(src)
    cupy.cuda.Device().synchronize()
    net.all_reduce(src, dst)
    stream.synchronize()
    if rank == 0:
        time.sleep(opt["nap"])
    start = time.time()
    fill(dst, -1, 0)
    net.all_reduce(src, dst)
    stream.synchronize()
    rows.report(case="nap", bad=int((dst != world).sum()),
                   error=net.error(), waited_s=time.time() - start)


def ours():
    """Descriptors that are sockets, and threads that are weft's."""
    sockets = threads = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            sockets += os.readlink("/proc/self/fd/" + fd).startswith("socket")
        except OSError:
            pass
    for task in os.listdir("/proc/self/task"):
        with open("/proc/self/task/%s/comm" % task) as f:
            threads += f.read().startswith("weft")
    return sockets, threads


def vanish():
    """The cable is cut; each rank must learn of it, and nothing may be left."""
    src = cupy.ones(1 << 18, dtype=cupy.int32)
    dst = cupy.zeros_like(src)
    cupy.cuda.Device().synchronize()
    for turn in range(1000000):
        net.all_reduce(src, dst)
        while not stream.done and not net.error() and time.time() < limit:
            time.sleep(0.001)
        if net.error() or time.time() > limit:
            break
        if turn == 20:
            open(opt["ready"] + str(rank), "w").close()
    code = net.error()
    told = time.time() - os.stat(opt["cut"]).st_mtime \
        if os.path.exists(opt["cut"]) else -1
    net.abort()
    for _ in range(50):
        after = ours()
        if after[1] == 0 and after[0] <= before[0]:
            break
        time.sleep(0.1)
    rows.report(case="vanish", rank=rank, error=code, told_s=told,
                   sockets_left=after[0] - before[0], threads_left=after[1])


class Local:
    """A communicator of all GPUs that this process sees, each a rank."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.n = cupy.cuda.runtime.getDeviceCount()
        self.comms = (ctypes.c_void_p * self.n)()
        self.call("ncclCommInitAll", self.comms, self.n, None)
        self.streams, self.bad = [], []
        for dev in range(self.n):
            with cupy.cuda.Device(dev):
                self.streams.append(cupy.cuda.Stream(non_blocking=True))
                self.bad.append(cupy.zeros(1, dtype=cupy.uint64))
                cupy.cuda.Device().synchronize()

    def call(self, name, *args):
        rc = getattr(self.lib, name)(*args)
        if rc:
            sys.exit("%s: NCCL error %d" % (name, rc))

    def buffers(self, size):
        self.src, self.dst = [], []
        for dev in range(self.n):
            with cupy.cuda.Device(dev):
                self.src.append(cupy.empty(size // 4, dtype=cupy.int32))
                self.dst.append(cupy.empty_like(self.src[-1]))
                cupy.cuda.Device().synchronize()

    def on_each(self, fn):
        for dev in range(self.n):
            with cupy.cuda.Device(dev):
                fn(dev)

    def turn(self, turn):
        """Fills, reduces and has a kernel compare; waits for nothing."""
        def prepare(dev):
            fill(self.src[dev], dev, turn, self.streams[dev])
            fill(self.dst[dev], -1, turn, self.streams[dev])

        def reduce(dev):
            self.call("ncclAllReduce",
                      ctypes.c_void_p(self.src[dev].data.ptr),
                      ctypes.c_void_p(self.dst[dev].data.ptr),
                      ctypes.c_size_t(self.src[dev].size), INT32, SUM,
                      ctypes.c_void_p(self.comms[dev]),
                      ctypes.c_void_p(self.streams[dev].ptr))

        self.on_each(prepare)
        self.call("ncclGroupStart")
        self.on_each(reduce)
        self.call("ncclGroupEnd")
        self.on_each(lambda dev: check(self.dst[dev], self.bad[dev], turn,
                                       on=self.streams[dev], ranks=self.n))

    def wait(self):
        self.on_each(lambda dev: self.streams[dev].synchronize())
        return sum(int(b[0]) for b in self.bad)

    def close(self):
        for comm in self.comms:
            self.call("ncclCommDestroy", ctypes.c_void_p(comm))


def whole():
    """All GPUs in one process, by two communicators in turn."""
    nets = [Local(opt["nccl"]) for _ in range(2)]
    total = bad = 0
    for size, rounds in opt["visible"]:
        for local in nets:
            local.buffers(size // 4 * 4)
        for turn in range(rounds):
            for local in nets:
                local.turn(turn)
        bad = sum(local.wait() for local in nets)
        total += rounds * len(nets)
    for local in nets:
        local.close()
    rows.report(case="whole", rounds=total, bad=bad, gpus=nets[0].n)


limit = time.time() + opt["timeout"] - 10
before = ours()
if opt["case"] == "whole":
    whole()
    sys.exit(0)
net = Raw(opt["nccl"])
if rank == 0:
    rows.report(nccl=str(net.version))
{"visible": visible, "chance": chance, "graph": graph, "nap": nap,
 "vanish": vanish}[opt["case"]]()
if opt["case"] != "vanish":
    stream.synchronize()
    net.close()
sys.exit(0)
