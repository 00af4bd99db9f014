# SPDX-License-Identifier: BSD-3-Clause
"""One rank of torch.distributed; the program that users have."""
import datetime
import os

import torch
import torch.distributed as dist

import measure
import rows

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
opt = rows.options()
torch.cuda.set_device(rank % torch.cuda.device_count())
dist.init_process_group("nccl", init_method="file://" + opt["rendezvous"],
                        rank=rank, world_size=world,
                        timeout=datetime.timedelta(seconds=opt["timeout"]))


def stamp():
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


timer = measure.Timer(torch.cuda.synchronize, dist.barrier, stamp,
                      torch.cuda.Event.elapsed_time)


def values(who, count, seed):
    """What rank @who contributes: whole numbers, so that sums are exact."""
    i = torch.arange(count, device="cuda", dtype=torch.int32)
    return (i * 7 + who * 1013 + seed * 31) % 997


def transfer(op, count):
    """Input, output, the operation, and what must come out."""
    part = max(count // world, 1)
    mine = values(rank, count, count)
    if op == "all_reduce":
        buf = mine.clone()
        want = sum(values(r, count, count) for r in range(world))
        return buf, want, lambda: dist.all_reduce(buf)
    if op == "all_gather":
        src = values(rank, part, count)
        buf = torch.full((part * world,), -1, device="cuda",
                         dtype=torch.int32)
        want = torch.cat([values(r, part, count) for r in range(world)])
        return buf, want, lambda: dist.all_gather_into_tensor(buf, src)
    if op == "reduce_scatter":
        src = values(rank, part * world, count)
        buf = torch.full((part,), -1, device="cuda", dtype=torch.int32)
        want = sum(values(r, part * world, count)
                   for r in range(world))[rank * part:(rank + 1) * part]
        return buf, want, lambda: dist.reduce_scatter_tensor(buf, src)
    if op == "all_to_all":
        src = values(rank, part * world, count)
        buf = torch.full_like(src, -1)
        here = slice(rank * part, (rank + 1) * part)
        want = torch.cat([values(r, part * world, count)[here]
                          for r in range(world)])
        return buf, want, lambda: dist.all_to_all_single(buf, src)
    if op == "broadcast":
        buf = mine.clone() if rank == 0 else torch.full_like(mine, -1)
        return buf, values(0, count, count), lambda: dist.broadcast(buf, 0)
    buf = torch.full_like(mine, -1)
    left, right = (rank - 1) % world, (rank + 1) % world

    def exchange():
        for req in dist.batch_isend_irecv([
                dist.P2POp(dist.isend, mine, right),
                dist.P2POp(dist.irecv, buf, left)]):
            req.wait()
    return buf, values(left, count, count), exchange


def gather(numbers):
    mine = torch.tensor(numbers, device="cuda", dtype=torch.float64)
    all_of_them = mine.new_empty(world * len(mine))
    dist.all_gather_into_tensor(all_of_them, mine)
    return all_of_them.view(world, -1).tolist()


for op in opt["ops"]:
    for size in opt["sizes"]:
        buf, want, fn = transfer(op, max(size // 4, 1))
        fn()
        torch.cuda.synchronize()
        bad = int((buf != want).sum())
        warm, count = measure.rounds(size)
        count *= opt.get("repeat", 1)
        if op == "all_reduce":
            buf.zero_()         # sums of sums would overflow
        times, cpu = timer(fn, warm, count)
        times = measure.slowest(times, gather)
        buf, want, fn = transfer(op, max(size // 4, 1))     # poisoned again
        fn()
        torch.cuda.synchronize()
        bad += int((buf != want).sum())
        total = torch.tensor([cpu, bad], device="cuda", dtype=torch.float64)
        dist.all_reduce(total)
        if rank == 0:
            measure.row(op, size, world, times, float(total[0]) / world,
                        int(total[1]))
        del buf, want, fn
if rank == 0:
    rows.report(nccl=".".join(map(str, torch.cuda.nccl.version())))
dist.barrier()
dist.destroy_process_group()
