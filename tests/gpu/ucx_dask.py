# SPDX-License-Identifier: BSD-3-Clause
"""
What users run on Dask arrays that live on GPUs, every element checked.

  ucx_dask.py client SCHEDULER_FILE ARM [PROGRAM...]   a cluster that is there
  ucx_dask.py local ARM POOL [PROGRAM...]       a LocalCUDACluster of two workers,
                                                with a pool of so much or none

PROGRAM: transpose (the default), shuffle, spill, mixed, uuids, memory.  Each
prints a line of JSON.  UCX_DASK_WORKERS: how many there are, 2 where unset.
UCX_DASK_NUMPY=1: with numpy, for a dry run.
"""
import json
import os
import sys
import time

import dask
import dask.array as da
from distributed import Client

NUMPY = os.environ.get("UCX_DASK_NUMPY") == "1"
WORKERS = int(os.environ.get("UCX_DASK_WORKERS", 2))
SIZE = int(os.environ.get("UCX_DASK_SIZE", 16000))
CHUNK = SIZE // 8
ROUNDS = 3
PARTS = 16


def module():
    import importlib
    return importlib.import_module("numpy" if NUMPY else "cupy")


def tell(arm, what, **more):
    print(json.dumps({"arm": arm, "what": what, **more}), flush=True)


def rows_and_columns(xp, place):
    (top, bottom), (left, right) = place
    return (xp.arange(top, bottom, dtype="f8")[:, None],
            xp.arange(left, right, dtype="f8")[None, :])


def make(block_info=None):
    """Element (i, j) is i * SIZE + j."""
    i, j = rows_and_columns(module(), block_info[None]["array-location"])
    return i * SIZE + j


def wrong(block, block_info=None):
    """How many elements of the sum with the transpose are wrong."""
    xp = module()
    i, j = rows_and_columns(xp, block_info[0]["array-location"])
    bad = (block != (i + j) * (SIZE + 1)).sum()
    return xp.asarray(bad).reshape(1, 1)


def transpose(client, arm, what="transpose and sum", rounds=ROUNDS):
    xp = module()
    chunks = ((CHUNK,) * 8,) * 2
    best = None
    for _ in range(rounds):
        x = da.map_blocks(make, chunks=chunks, dtype="f8",
                          meta=xp.empty((0, 0))).persist()
        x[0, 0].compute()
        start = time.monotonic()
        y = (x + x.T).persist()
        total = float(y.sum().compute())
        took = time.monotonic() - start
        best = took if best is None or took < best else best
        bad = int(da.map_blocks(wrong, y, chunks=((1,) * 8,) * 2, dtype="i8",
                                meta=xp.empty((0, 0), "i8")).sum().compute())
        if bad:
            sys.exit(f"{bad} elements are wrong")
        # sums of i * SIZE + j over all elements, twice
        right = float(SIZE) ** 2 * (SIZE ** 2 - 1)
        if abs(total - right) > 1e-9 * right:
            sys.exit(f"the sum is {total}, not {right}")
        spilled = client.run(spilled_keys)
        del x, y
    tell(arm, what, array_bytes=SIZE * SIZE * 8, rounds=rounds,
         best_s=round(best, 4), GB_per_s=round(SIZE * SIZE * 8 / best / 1e9, 3),
         **({"spilled": sum(spilled.values())} if any(spilled.values()) else {}))
    return spilled


def spilled_keys(dask_worker=None):
    """What dask-cuda's store has moved from the GPU to the host."""
    return len(getattr(dask_worker.data, "host_buffer", ()))


def spill(client, arm):
    """The same where a worker may keep less on its GPU than it has."""
    if not any(transpose(client, arm, "transpose, spilling", 1).values()):
        sys.exit("nothing was spilled")


def numbers(part, count):
    """Whole numbers that no other part has, in an order of their own."""
    xp = module()
    i = xp.arange(count, dtype="i8")
    return (i * 7919 % count) * PARTS + part


def pieces(values):
    """By value: to each part what leaves its remainder."""
    kind = values // PARTS % PARTS
    return [values[kind == part] for part in range(PARTS)]


def gathered(part, count, *arrived):
    """How much is in the wrong part, and whether all that is due is there."""
    xp = module()
    values = xp.sort(xp.concatenate(arrived))
    due = xp.arange(count * PARTS, dtype="i8")
    due = due[due // PARTS % PARTS == part]
    if values.size != due.size:
        return abs(int(values.size) - int(due.size))
    return int((values != due).sum())


def shuffle(client, arm):
    """Each part sends each other part a piece, chosen by value."""
    count = SIZE * SIZE // PARTS // 16
    start = time.monotonic()
    parts = [dask.delayed(pieces, nout=PARTS)(dask.delayed(numbers)(p, count))
             for p in range(PARTS)]
    bad = sum(dask.compute(*[dask.delayed(gathered)(
        p, count, *[one[p] for one in parts]) for p in range(PARTS)]))
    if bad:
        sys.exit(f"{bad} values are wrong after the shuffle")
    tell(arm, "shuffle by value", array_bytes=count * PARTS * 8,
         seconds=round(time.monotonic() - start, 3))


def host_of(array):
    return array if NUMPY else array.get()


def checked_on_host(values, part, count):
    import numpy
    i = numpy.arange(count, dtype="i8")
    return int((values != (i * 7919 % count) * PARTS + part).sum()), values


def checked_on_gpu(told, part, count):
    bad, values = told
    return bad + int((module().asarray(values) != numbers(part, count)).sum())


def mixed(client, arm):
    """GPU to GPU, to a worker that has none, and back."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    gpus = [a for a, w in workers.items() if "no-gpu" not in str(w["name"])]
    bare = [a for a, w in workers.items() if "no-gpu" in str(w["name"])]
    count, futures = 1 << 20, []
    for part in range(PARTS):
        a, b = gpus[part % 2], gpus[(part + 1) % 2]
        made = client.submit(numbers, part, count, workers=[a])
        moved = client.submit(host_of, made, workers=[b])
        seen = client.submit(checked_on_host, moved, part, count, workers=bare)
        futures.append(client.submit(checked_on_gpu, seen, part, count,
                                     workers=[a]))
    bad = sum(client.gather(futures))
    if bad or not bare:
        sys.exit(f"{bad} values are wrong, {len(bare)} workers without a GPU")
    tell(arm, "GPU to GPU to host and back", array_bytes=count * PARTS * 8)


def uuid_of(_):
    import cupy
    return cupy.cuda.runtime.getDeviceProperties(0)["uuid"].hex()


def uuids(client, arm):
    """As a user looks whose GPUs the workers have."""
    workers = list(client.scheduler_info(n_workers=-1)["workers"])
    found = [client.submit(uuid_of, n, workers=[w], pure=False).result()
             for n, w in enumerate(workers)]
    if len(set(found)) != len(workers):
        sys.exit(f"{len(workers)} workers have {found}")
    tell(arm, "a GPU each", uuids=found)


def memory_of():
    """The GPU's UUID, and what is used of it once CuPy has given back its own."""
    import cupy
    cupy.get_default_memory_pool().free_all_blocks()
    free, total = cupy.cuda.runtime.memGetInfo()
    return uuid_of(None), (total - free) >> 20


def memory(client, arm):
    """What contexts and rings take: of all processes on a GPU together."""
    client.run(memory_of)
    used = {}
    for uuid, mib in client.run(memory_of).values():
        used[uuid] = min(mib, used.get(uuid, mib))
    tell(arm, "memory used of each GPU", MiB=list(used.values()))


def fetched(dask_worker):
    """Bytes that this worker fetched from others, as Dask counts them."""
    return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)


def run(client, arm, programs=("transpose",)):
    client.wait_for_workers(WORKERS, timeout=40)
    for program in programs:
        {"transpose": transpose, "shuffle": shuffle, "spill": spill,
         "mixed": mixed, "uuids": uuids, "memory": memory}[program](client, arm)
    if not NUMPY and not {"spill", "mixed"} & set(programs):
        tell(arm, "fetched, as Dask counts it",
             gpu_bytes=sum(client.run(fetched).values()))


def local(arm, pool, programs):
    from dask_cuda import LocalCUDACluster
    with LocalCUDACluster(n_workers=2, protocol="ucx",
                          enable_tcp_over_ucx=True, enable_nvlink=True,
                          rmm_pool_size=pool, dashboard_address=None,
                          ) as cluster, Client(cluster) as client:
        run(client, arm, programs)


def main():
    if sys.argv[1] == "local":
        local(sys.argv[2], sys.argv[3] or None, sys.argv[4:] or ("transpose",))
        return
    with Client(scheduler_file=sys.argv[2], timeout=40) as client:
        run(client, sys.argv[3], sys.argv[4:] or ("transpose",))
        client.shutdown()


if __name__ == "__main__":
    main()
