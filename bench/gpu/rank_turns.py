# SPDX-License-Identifier: BSD-3-Clause
"""
One rank of one arm of bench/gpu/pods.py.  It lives as long as the table takes
and does what its parent says, a line each, so that the arms can take turns.
"""
import json
import socket
import statistics
import time

import cupy

import kernels
from raw_nccl import Raw, opt, rank, stream, world


def used():
    """GPU memory in use, of all processes: only one arm does anything."""
    free, total = cupy.cuda.runtime.memGetInfo()
    return total - free


class Rank:
    def __init__(self):
        self.net, self.number = None, 0
        # for all of its life: what is in use grows by NCCL's alone
        most = max(opt["sizes"]) // 4 + world
        self.src = cupy.empty(most, dtype=cupy.int32)
        self.dst = cupy.empty(most, dtype=cupy.int32)
        self.bad = cupy.zeros(1, dtype=cupy.uint64)
        self.one = cupy.zeros(1, dtype=cupy.int32)
        # loads the kernels
        kernels.fill(self.src, rank, 0)
        kernels.check(self.src, self.bad, 0, who=rank)
        stream.synchronize()

    def wrong(self):
        stream.synchronize()
        return int(self.bad[0])

    def connect(self):
        self.net = Raw(opt["nccl"])
        self.barrier()
        return {"nccl": self.net.version, "warmed": self.wrong()}

    def barrier(self):
        self.net.all_reduce(self.one, self.one)
        stream.synchronize()

    def turn(self, op, size, checked, warm, count, series):
        """@checked operations compared, each; then @series of @count, timed."""
        into, out, want = kernels.shape(op, max(size // 4, 1))
        src, dst = self.src[:into], self.dst[:out]
        call, before = getattr(self.net, op), self.wrong()

        def checked_one():
            self.number += 1
            kernels.fill(src, rank, self.number)
            kernels.fill(dst, -1, self.number)
            call(src, dst)
            kernels.check(dst, self.bad, self.number, **want)

        for _ in range(checked):
            checked_one()
        stream.synchronize()
        for _ in range(warm):
            call(src, dst)
        kernels.fill(dst, -1, self.number)
        times = []
        for _ in range(series):
            stream.synchronize()
            self.barrier()
            start = time.perf_counter()
            for _ in range(count):
                call(src, dst)
            stream.synchronize()
            times.append((time.perf_counter() - start) / count)
        kernels.check(dst, self.bad, self.number, **want)
        return {"us": statistics.median(times) * 1e6,
                "bad": self.wrong() - before}

    def end(self):
        self.barrier()
        self.net.close()
        return {}


def main():
    me = Rank()
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(opt["turns"])
        said = link.makefile("r")

        def answer(**what):
            link.sendall((json.dumps(dict(what, rank=rank)) + "\n").encode())

        answer()
        for line in said:
            do = json.loads(line)
            what = do.pop("do")
            before = used()
            result = getattr(me, what)(**do)
            answer(grown=used() - before, **result)
            if what == "end":
                return


main()
