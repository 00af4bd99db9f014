# SPDX-License-Identifier: BSD-3-Clause
"""
One rank of tests/gpu/nccl/cases.py that trains with PyTorch.  What matters is what it
does while collectives are under way: it calls kernels for the first time, which
loads their code, compiles and loads modules, and gives memory back to the driver.
In its own context the driver lets kernels end before any of that goes on.
"""
import copy
import datetime
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import rows

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
opt = rows.options()
STEPS = 5
# compiled at run time by some releases, kernels of their own in others
RARE = [torch.erfinv, torch.lgamma, torch.digamma, torch.special.i0e,
        torch.special.ndtri, torch.special.log_ndtr]


def network():
    """Many kinds of layers: each has kernels that no step has called before."""
    layers, width = [], 3
    for i, n in enumerate([16, 32, 48, 64, 96, 128, 160, 256]):
        layers += [nn.Conv2d(width, n, 3 if i % 2 else 5, padding=1),
                   nn.BatchNorm2d(n), nn.GELU() if i % 2 else nn.SiLU()]
        width = n
    layers += [nn.AdaptiveAvgPool2d(4), nn.Flatten(),
               nn.Linear(width * 16, 4096), nn.LayerNorm(4096), nn.Tanh(),
               nn.Linear(4096, 4096), nn.Softplus(), nn.Linear(4096, 1000)]
    return nn.Sequential(*layers)


def train():
    """The weights must be the same on all ranks afterwards; how many are not."""
    torch.manual_seed(7)
    model = nn.parallel.DistributedDataParallel(
        network().cuda(), device_ids=[torch.cuda.current_device()],
        bucket_cap_mb=4)
    optimizer = torch.optim.AdamW(model.parameters())
    torch.manual_seed(rank)
    for step in range(STEPS):
        edge = 64 + 8 * step
        x = torch.randn(8, 3, edge, edge, device="cuda")
        y = torch.randint(0, 1000, (8,), device="cuda")
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    bad = 0
    for p in model.parameters():
        first = p.detach().clone()
        dist.broadcast(first, 0)
        bad += int((first != p).sum())
    return bad


def beside():
    """Values that are wrong of collectives with something new beside each."""
    big = torch.empty(64 << 20, device="cuda", dtype=torch.int32)
    x = torch.rand(1000, device="cuda").clamp(0.1, 0.9)
    bad = 0
    for i, op in enumerate(RARE):
        spare = torch.empty(32 << 20, device="cuda")
        big.fill_(i + rank)
        torch.cuda.synchronize()
        work = dist.all_reduce(big, async_op=True)
        op(x)
        del spare
        torch.cuda.empty_cache()
        work.wait()
        bad += int((big != sum(i + r for r in range(world))).sum())
    return bad


def sharded():
    """
    Steps with fully_shard, beside the same steps on all ranks' data here; how
    many weights differ by more than the order of sums accounts for.
    """
    torch.manual_seed(7)
    whole = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.GELU())
                            for _ in range(4)]).cuda()
    parts = copy.deepcopy(whole)
    for layer in parts:
        fully_shard(layer)
    fully_shard(parts)
    optimizers = {m: torch.optim.SGD(m.parameters(), 0.5)
                  for m in (whole, parts)}
    for _ in range(STEPS):
        x = torch.randn(world * 64, 1024).cuda()
        for model, data in ((whole, x), (parts, x[rank * 64:][:64])):
            model(data).square().mean().backward()
            optimizers[model].step()
            optimizers[model].zero_grad()
    return sum(int((~torch.isclose(p.full_tensor(), w, 1e-3, 1e-4)).sum())
               for p, w in zip(parts.parameters(), whole.parameters()))


torch.cuda.set_device(rank % torch.cuda.device_count())
dist.init_process_group("nccl", init_method="file://" + opt["rendezvous"],
                        rank=rank, world_size=world,
                        timeout=datetime.timedelta(seconds=opt["timeout"]))
if opt["case"] == "fsdp":
    steps, wrong = STEPS, sharded()
else:
    steps, wrong = STEPS + len(RARE), train() + beside()
dist.destroy_process_group()
rows.report(case=opt["case"], steps=steps, bad=wrong)
