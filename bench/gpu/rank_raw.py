# SPDX-License-Identifier: BSD-3-Clause
"""One rank over cupy: its own nccl module, or any libnccl.so.2 by ctypes."""
import os
import signal
import time

import cupy

import measure
import rows
from raw_nccl import Cupy, Raw, opt, rank, stream, world


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


def gather(numbers):
    # NCCL moves int32 here
    mine = cupy.asarray(numbers, dtype=cupy.float64).view(cupy.int32)
    all_of_them = cupy.empty(world * len(mine), dtype=cupy.int32)
    cupy.cuda.Device().synchronize()
    net.all_gather(mine, all_of_them)
    stream.synchronize()
    return all_of_them.view(cupy.float64).reshape(world, -1).tolist()


def bench():
    timer = measure.Timer(stream.synchronize, barrier, stream.record,
                          cupy.cuda.get_elapsed_time)
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
            times, cpu = timer(lambda: call(src, dst), warm, count)
            times = measure.slowest(times, gather)
            # the last of many rounds, into a buffer that was right before
            bad += int((dst != want).sum())
            cupy.cuda.Device().synchronize()
            net.all_reduce(bad, bad)
            stream.synchronize()
            if rank == 0:
                measure.row(op, size, world, times, cpu, int(bad[0]))


def killed():
    """The last rank dies in the middle; the others must learn of it in time."""
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
        rows.report(kill_error=code, kill_told_s=told,
                       kill_abort_s=time.time() - start - told)


net = Raw(opt["nccl"]) if opt.get("nccl") else Cupy()
if rank == 0:
    rows.report(nccl=str(net.version))
if opt.get("kill"):
    killed()
else:
    bench()
    barrier()
    net.close()
