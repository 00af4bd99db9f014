# SPDX-License-Identifier: BSD-3-Clause
"""One rank of tests/gpu/cases.py: what is right, not how fast it is."""
import ctypes
import os
import sys
import time

import cupy

import measure
from raw_nccl import INT32, SUM, Raw, opt, rank, stream, world

SOURCE = r"""
__device__ int value(long long i, int who, int round)
{
	return (int)((i * 7 + who * 1013 + round * 31) % 997);
}

extern "C" __global__ void fill(int *p, long long n, int who, int round)
{
	long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;

	for (; i < n; i += gridDim.x * (long long)blockDim.x)
		p[i] = who < 0 ? -1 : value(i, who, round);
}

/*
 * What @op leaves: sums of all ranks' values from @start on, or, with @who set,
 * that rank's alone; of pieces of @part each from rank 0's on, if that is set.
 */
extern "C" __global__ void check(const int *p, long long n, int world, int who,
				 long long start, long long part, int round,
				 unsigned long long *bad)
{
	long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
	int want, r;

	for (; i < n; i += gridDim.x * (long long)blockDim.x) {
		want = 0;
		if (part)
			want = value(i % part, (int)(i / part), round);
		else if (who >= 0)
			want = value(start + i, who, round);
		else
			for (r = 0; r < world; r++)
				want += value(start + i, r, round);
		if (p[i] != want)
			atomicAdd(bad, 1ULL);
	}
}
"""
kernels = cupy.RawModule(code=SOURCE)
fill_kernel = kernels.get_function("fill")
check_kernel = kernels.get_function("check")
LONG, INT = cupy.int64, cupy.int32


def grid(n):
    return (min(-(-n // 256), 1056),), (256,)


def fill(buf, who, turn, on=stream):
    with on:
        fill_kernel(*grid(buf.size),
                    (buf, LONG(buf.size), INT(who), INT(turn)))


def check(buf, bad, turn, who=-1, start=0, part=0, on=stream, ranks=world):
    with on:
        check_kernel(*grid(buf.size),
                     (buf, LONG(buf.size), INT(ranks), INT(who), LONG(start),
                      LONG(part), INT(turn), bad))


def shape(op, count):
    """Elements in, elements out, and what to compare with."""
    part = max(count // world, 1)
    return {"all_reduce": (count, count, {}),
            "all_gather": (part, part * world, {"part": part}),
            "reduce_scatter": (part * world, part, {"start": rank * part}),
            "broadcast": (count, count, {"who": 0}),
            "send_recv": (count, count, {"who": (rank - 1) % world}),
            }[op]


def visible():
    """
    Values change with every round, the target is poisoned, and a kernel behind
    NCCL's on the same stream compares: the host does not wait in between.
    """
    total = 0
    bad = cupy.zeros(1, dtype=cupy.uint64)
    for op in measure.OPS:
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
    measure.report(case="visible", rounds=total, bad=int(bad[0]))


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
    for turn in range(60):
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
    measure.report(case="graph", rounds=260, bad=int(bad[0]),
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
    measure.report(case="nap", bad=int((dst != world).sum()),
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
    """The cable is cut; each rank must be told, and nothing may be left."""
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
    measure.report(case="vanish", rank=rank, error=code, told_s=told,
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
    measure.report(case="whole", rounds=total, bad=bad, gpus=nets[0].n)


limit = time.time() + opt["timeout"] - 10
before = ours()
if opt["case"] == "whole":
    whole()
    sys.exit(0)
net = Raw(opt["nccl"])
if rank == 0:
    measure.report(nccl=str(net.version))
{"visible": visible, "graph": graph, "nap": nap,
 "vanish": vanish}[opt["case"]]()
if opt["case"] != "vanish":
    stream.synchronize()
    net.close()
sys.exit(0)
