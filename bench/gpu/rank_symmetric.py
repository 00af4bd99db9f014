# SPDX-License-Identifier: BSD-3-Clause
"""
One of the two ranks of symmetric.py: what programs do in torch.distributed's symmetric
memory.  Every value that arrives is compared, also after what was timed; what is
written to has other values before.
"""
import datetime
import os
import statistics
import sys
import time
import traceback

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric

import rows

SIZES = [8, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20]
REDUCED = {"one_shot_all_reduce": [8 << 10, 64 << 10, 256 << 10, 1 << 20],
           "two_shot_all_reduce_": [256 << 10, 1 << 20, 8 << 20, 64 << 20]}
# As DeepSeek-V3 has them, but for the number of ranks; a batch of prefill and one
# of decode.
HIDDEN, EXPERTS, EACH = 7168, 64, 8
TOKENS = {128: 20, 4096: 8}  # and how often
WARM = 3

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
peer = 1 - rank
opt = rows.options()
device = torch.device("cuda", rank % torch.cuda.device_count())
kept = []  # a peer may have it mapped still


class Symmetric:
    """Memory that both have: mine, and the peer's."""

    def __init__(self, shape, dtype):
        self.mine = symmetric.empty(*shape, dtype=dtype, device=device)
        self.handle = symmetric.rendezvous(self.mine,
                                           dist.group.WORLD.group_name)
        self.theirs = self.handle.get_buffer(peer, shape, dtype)
        kept.append(self)

    def of(self, who):
        return self.mine if who == rank else self.theirs


def barrier():
    torch.cuda.synchronize()
    dist.barrier()


def on_both(number):
    total = torch.tensor([number])
    dist.all_reduce(total)
    return int(total)


def report(op, size, us, bad):
    """By rank 0; @bad of both."""
    bad = on_both(bad)
    if rank == 0:
        rows.report(op=op, bytes=size, us=us, bad=bad)


def each(fn, count):
    """Microseconds of one whose end is waited for."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        fn()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def in_a_row(fn, count):
    """Microseconds of one of many that follow each other."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        fn()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3 / count


def counts(size):
    """To warm up, one by one, in a row."""
    if size <= 1 << 20:
        return 10, 100, 400
    return (3, 20, 50) if size <= 8 << 20 else (2, 8, 12)


# ---- put and get -------------------------------------------------------------

def pattern(who, count, seed):
    return torch.arange(count, dtype=torch.int32, device=device) * 7 + \
        who * 1013 + seed


def copies():
    """Rank 0 does it, the other one's GPU has nothing to do."""
    memory = Symmetric((max(SIZES) // 4,), torch.int32)
    local = torch.empty(max(SIZES) // 4, dtype=torch.int32, device=device)
    for op in ("put", "get"):
        for size in SIZES:
            copy(op, size, memory, local)


def copy(op, size, memory, local):
    count, seed = size // 4, size + 131 * opt["round"]
    near = local[:count]
    far = memory.of(1)[:count]
    source, target = (near, far) if op == "put" else (far, near)
    owner = {"put": 0, "get": 1}[op]  # of the source
    if rank == owner:
        source.copy_(pattern(owner, count, seed))
    else:
        target.fill_(-1)
    barrier()
    single = many = 0
    if rank == 0:
        warm, one_by_one, row = counts(size)
        for _ in range(warm):
            target.copy_(source)
        single = each(lambda: target.copy_(source), one_by_one)
        many = in_a_row(lambda: target.copy_(source), row)
    barrier()
    bad = 0
    if rank != owner:
        bad = int((target != pattern(owner, count, seed)).sum())
    report(op + ", waited for", size, single, bad)
    report(op + ", in a row", size, many, bad)


# ---- all_reduce --------------------------------------------------------------

def addend(who, count, seed):
    """Whole numbers whose sums bfloat16 has, too."""
    return ((torch.arange(count, device=device) + 3 * who + seed) % 50).to(
        torch.bfloat16)


def reduces():
    for name, sizes in REDUCED.items():
        for size in sizes:
            reduce(name, size)


def reduce(name, size):
    count = size // 2
    memory = Symmetric((count,), torch.bfloat16)
    operation = getattr(torch.ops.symm_mem, name)

    def run():
        return operation(memory.mine, "sum", dist.group.WORLD.group_name)

    def wrong(seed):
        memory.mine.copy_(addend(rank, count, seed))
        barrier()
        out = run()
        bad = int((out != sum(addend(who, count, seed)
                              for who in range(world))).sum())
        barrier()
        return bad

    bad = wrong(opt["round"])
    memory.mine.zero_()
    barrier()
    warm, _, row = counts(size)
    for _ in range(warm):
        run()
    barrier()
    us = in_a_row(run, row)
    barrier()
    report(name.rstrip("_"), size, us, bad + wrong(opt["round"] + 7))


# ---- tokens to experts, and back ---------------------------------------------

def made(who, tokens, turn):
    """A rank's tokens, the experts of each, and the weights of these."""
    source = torch.Generator(device).manual_seed(
        2 * (turn + 1000 * opt["round"]) + who)
    values = torch.randint(0, 8, (tokens, HIDDEN), generator=source,
                           device=device, dtype=torch.int8)
    experts = torch.rand(tokens, EXPERTS, generator=source,
                         device=device).topk(EACH).indices.to(torch.int32)
    weights = torch.randint(1, 3, (tokens, EACH), generator=source,
                            device=device, dtype=torch.int32)
    return values.to(torch.bfloat16), experts, weights


def goes_to(experts, who):
    """The tokens with an expert there."""
    return (experts // (EXPERTS // world) == who).any(1).nonzero().flatten()


def wide(tensor):
    """The same bytes, in the widest words that there are."""
    return tensor.view(torch.int64)


class Exchange:
    """
    As DeepEP does it: each token goes once to each rank that has an expert of it,
    where the results are added up with their weights; its own rank fetches these
    sums.  In what belongs to a rank there is a row for each that sends.
    """

    def __init__(self, tokens):
        self.tokens = tokens
        shape = (world, tokens, HIDDEN)
        self.came = Symmetric(shape, torch.bfloat16)
        self.plan = Symmetric((world, tokens, 2 * EACH), torch.int32)
        self.count = Symmetric((world, 1), torch.int32)
        # the last one is zero, for who has no expert there
        self.done = Symmetric((world, tokens + 1, HIDDEN), torch.bfloat16)
        self.got = torch.empty(shape, dtype=torch.bfloat16, device=device)
        self.sum = torch.empty(shape[1:], dtype=torch.bfloat16, device=device)

    def poison(self):
        for memory in (self.came.mine, self.done.mine, self.got, self.sum):
            memory.fill_(float("nan"))
        self.plan.mine.fill_(-1)
        self.count.mine.fill_(-1)
        self.done.mine[:, self.tokens] = 0

    def timed(self, fn):
        """Both begin at once, and both have ended."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        barrier()
        self.came.handle.barrier(channel=0)
        begin.record()
        fn()
        self.came.handle.barrier(channel=0)
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) * 1e3

    def dispatch(self, values, plan, to):
        for who in (peer, rank):
            count = len(to[who])
            torch.index_select(wide(values), 0, to[who],
                               out=wide(self.came.of(who))[rank, :count])
            torch.index_select(plan, 0, to[who],
                               out=self.plan.of(who)[rank, :count])
            self.count.of(who)[rank].fill_(count)

    def compute(self):
        """An expert here gives back what it gets."""
        for who in range(world):
            count = int(self.count.mine[who])
            experts, weights = self.plan.mine[who, :count].split(EACH, 1)
            here = experts // (EXPERTS // world) == rank
            factor = (weights * here).sum(1, keepdim=True)
            self.done.mine[who, :count] = self.came.mine[who, :count] * factor

    def combine(self, places):
        for who in (peer, rank):
            torch.index_select(wide(self.done.of(who))[rank], 0, places[who],
                               out=wide(self.got)[who])
        torch.add(self.got[0], self.got[1], out=self.sum)

    def wrong_here(self, turn):
        """Values that came otherwise than they were sent."""
        bad = 0
        for who in range(world):
            values, experts, weights = made(who, self.tokens, turn)
            to = goes_to(experts, rank)
            count = len(to)
            bad += int(self.count.mine[who]) != count
            bad += int((self.came.mine[who, :count] != values[to]).sum())
            bad += int((~self.came.mine[who, count:].isnan()).sum())
            plan = torch.cat([experts, weights], 1)[to]
            bad += int((self.plan.mine[who, :count] != plan).sum())
        return bad

    def turn(self, number):
        """Microseconds of both ways, and what was wrong."""
        values, experts, weights = made(rank, self.tokens, number)
        to = [goes_to(experts, who) for who in range(world)]
        places = []
        for tokens in to:
            places.append(torch.full((self.tokens,), self.tokens, device=device))
            places[-1][tokens] = torch.arange(len(tokens), device=device)
        plan = torch.cat([experts, weights], 1)
        self.poison()
        there = self.timed(lambda: self.dispatch(values, plan, to))
        barrier()
        bad = self.wrong_here(number)
        if not bad:
            self.compute()
        back = self.timed(lambda: self.combine(places))
        want = values * weights.sum(1, keepdim=True)
        bad += int((self.sum != want).sum())
        return there, back, bad


def experts():
    for tokens, turns in TOKENS.items():
        exchange = Exchange(tokens)
        told = [exchange.turn(number) for number in range(WARM + turns)]
        there, back, _ = (statistics.median(column)
                          for column in zip(*told[WARM:]))
        bad = sum(turn[-1] for turn in told)
        # of a rank's tokens, nearly all of which the other one gets, too
        size = tokens * HIDDEN * 2
        report(f"dispatch, {tokens} tokens", size, there, bad)
        report(f"combine, {tokens} tokens", size, back, bad)


def main():
    torch.cuda.set_device(device)
    dist.init_process_group(
        "gloo", init_method="file://" + opt["rendezvous"], rank=rank,
        world_size=world, timeout=datetime.timedelta(seconds=40))
    failed = 0
    for part in (copies, reduces, experts):
        try:
            part()
        except Exception:
            traceback.print_exc()
            failed = 1
    # what a library does at its end is not what is asked here
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(failed)


main()
