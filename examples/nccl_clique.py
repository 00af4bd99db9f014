# SPDX-License-Identifier: BSD-3-Clause
# %% [markdown]
# # NCCL cliques inside a running Dask cluster
#
# Workers of a Dask cluster that is already there form an NCCL communicator for
# one computation, without MPI: Dask itself carries NCCL's unique id to them. A
# Dask collection goes in, a function in C (`nccl_moments.c`) gets the
# communicator and reduces across the ranks, a Dask collection comes back. Then
# the clique is gone, and the next one may have other workers.
#
# The workers need CuPy, NCCL, NCCL's header and a C compiler; the client needs
# none of them. This is a script and a notebook:
#
#     python nccl_clique.py                          # LocalCluster
#     python nccl_clique.py --cuda                   # LocalCUDACluster
#     python nccl_clique.py --scheduler-file FILE    # a cluster that runs
#
# Under `weft run`, with `NCCL_NET_PLUGIN=weft`, weft carries both what Dask
# moves and what NCCL moves.

# %%
import argparse
import hashlib
import json
import os
import socket
import sys
import time
import uuid

import dask.array as da
from distributed import (Client, LocalCluster, as_completed, get_worker,
                         wait)

# %% [markdown]
# ## In the workers
#
# These functions run as Dask tasks, in a thread of the worker: its event loop
# goes on while NCCL waits for the other ranks. What a worker keeps of its
# cliques hangs on the worker object.


# %%
def unique_id():
    from cupy.cuda import nccl
    return nccl.get_unique_id()


def gpus():
    """This worker's host, and the GPUs that it sees, in its order."""
    import cupy
    count = cupy.cuda.runtime.getDeviceCount()
    return socket.gethostname(), [cupy.cuda.Device(i).pci_bus_id
                                  for i in range(count)]


def join(session, uid, ranks, rank, device):
    """Enters the clique; returns when all ranks have."""
    import cupy
    from cupy.cuda import nccl
    with cupy.cuda.Device(device):
        cliques()[session] = {
            "comm": nccl.NcclCommunicator(ranks, uid, rank),
            "rank": rank, "device": device,
            "stream": cupy.cuda.Stream(non_blocking=True)}


def leave(session):
    import cupy
    member = cliques().pop(session, None)
    if member:
        with cupy.cuda.Device(member["device"]):
            member["comm"].destroy()


def cliques():
    """What this worker is a member of, by session."""
    worker = get_worker()
    if not hasattr(worker, "nccl_cliques"):
        worker.nccl_cliques = {}
    return worker.nccl_cliques


def mapped(name):
    """Files that this process has mapped whose path contains @name."""
    with open("/proc/self/maps") as maps:
        return sorted({line.split(maxsplit=5)[5].strip() for line in maps
                       if name in line})


def moments_function(source):
    """
    The C function: bound by Cython (nccl_moments.pyx) where that is installed,
    else by ctypes, compiled against the NCCL that CuPy has loaded.
    """
    import ctypes
    import subprocess
    import tempfile

    try:
        from nccl_moments import clique_moments
        return clique_moments
    except ImportError:
        pass
    worker = get_worker()
    key = hashlib.sha256(source.encode()).hexdigest()
    if getattr(worker, "nccl_moments", (None,))[0] == key:
        return worker.nccl_moments[1]
    nccl = mapped("libnccl.so")[0]
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "moments.so")
        subprocess.run(
            [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O2",
             "-x", "c", "-", "-x", "none", nccl, "-o", library],
            input=source, text=True, check=True)
        function = ctypes.CDLL(library).clique_moments
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    function.argtypes = [pointer, number, pointer, pointer, size, pointer,
                         pointer, size, pointer, ctypes.POINTER(number)]

    def call(*args):
        return function(*args, ctypes.byref(number()))

    worker.nccl_moments = key, call
    return call


def address(array):
    return array.__cuda_array_interface__["data"][0]


def finish(member):
    """Waits for the stream.  A rank that is lost is an error, not a hang."""
    while not member["stream"].done:
        member["comm"].check_async_error()
        time.sleep(0.0005)
    member["stream"].synchronize()


def centre(session, source, columns, *blocks):
    """
    One rank's share: its blocks less the mean of all samples, and on rank 0
    also the covariance.  A rank that fails leaves the clique at once, so that
    the others learn of it.
    """
    import cupy
    from cupy.cuda import nccl
    member = cliques()[session]
    comm, stream = member["comm"], member["stream"]
    try:
        moments = moments_function(source)
        with cupy.cuda.Device(member["device"]), stream:
            blocks = [cupy.asarray(block) for block in blocks]
            sums = cupy.zeros(columns + 1)
            products = cupy.zeros((columns, columns))
            for block in blocks:
                sums[:-1] += block.sum(axis=0)
                sums[-1] += block.shape[0]
                products += block.T @ block
            all_sums = cupy.empty_like(sums)
            all_products = cupy.empty_like(products)
            status = moments(
                comm.comm, 0, address(sums), address(all_sums), sums.size,
                address(products), address(all_products), products.size,
                stream.ptr)
            if status:
                raise nccl.NcclError(status)
            finish(member)
            count = all_sums[-1]
            mean = all_sums[:-1] / count
            blocks = [block - mean for block in blocks]
            covariance = None
            if member["rank"] == 0:
                outer = mean.reshape(-1, 1) @ mean.reshape(1, -1)
                covariance = (all_products - outer * count) / (count - 1)
            finish(member)
    except BaseException:
        comm.abort()
        raise
    return [*blocks, covariance]


def to_host(block):
    import cupy
    return cupy.asnumpy(block)


# %% [markdown]
# ## The clique
#
# Rank is the place in the list of workers. Each worker must have a free thread,
# since all ranks must run at once. Each rank takes a GPU that no rank on its
# host has: the first that its worker sees, in a LocalCUDACluster its own.


# %%
class NcclClique:
    """with NcclClique(client, workers) as clique: clique.run(function)"""

    def __init__(self, client, workers):
        self.client = client
        self.workers = list(workers)
        self.session = uuid.uuid4().hex

    def __enter__(self):
        uid = self.client.submit(unique_id, workers=self.workers[:1],
                                 pure=False).result()
        try:
            self.client.gather(self.submit(join, [
                (self.session, uid, len(self.workers), rank, device)
                for rank, device in enumerate(self.devices())]))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        there = self.client.nthreads()      # asks the scheduler
        self.workers = [worker for worker in self.workers if worker in there]
        self.run(leave, self.session)

    def submit(self, function, arguments):
        """A future per rank of @function(*arguments[rank])."""
        return [self.client.submit(function, *args, workers=[worker],
                                   pure=False)
                for worker, args in zip(self.workers, arguments)]

    def run(self, function, *args):
        """What @function(*args) returns on each rank."""
        return self.client.gather(
            self.submit(function, [args] * len(self.workers)))

    def devices(self):
        taken, chosen = set(), []
        for host, seen in self.run(gpus):
            free = [i for i, gpu in enumerate(seen)
                    if (host, gpu) not in taken]
            if not free:
                raise RuntimeError(f"a worker on {host} has no GPU of its own:"
                                   f" it sees {seen}, other ranks have them")
            chosen.append(free[0])
            taken.add((host, seen[free[0]]))
        return chosen


# %% [markdown]
# ## The algorithm, as its user sees it
#
# Blocks stay on the worker that has them, if it is in the clique; Dask brings
# the others to a rank.


# %%
HERE = os.path.dirname(os.path.abspath(globals().get("__file__", "x")))


def moments(clique, samples):
    """
    @samples: a Dask array, samples by features.  Returns two Dask arrays whose
    blocks are CuPy's, in the workers: the samples less their mean, and the
    covariance of the features.
    """
    client, ranks = clique.client, len(clique.workers)
    columns = samples.shape[1]
    samples = samples.rechunk({1: columns})
    futures = client.compute(list(samples.to_delayed().ravel()))
    wait(futures)
    homes = client.who_has(futures)
    share = [[] for _ in range(ranks)]
    for number, future in enumerate(futures):
        known = [clique.workers.index(home) for home in homes[future.key]
                 if home in clique.workers]
        share[known[0] if known else number % ranks].append(number)

    with open(os.path.join(HERE, "nccl_moments.c")) as file:
        source = file.read()
    results = clique.submit(centre, [
        (clique.session, source, columns, *(futures[i] for i in numbers))
        for numbers in share])
    for result in as_completed(results):
        if result.status == "error":
            result.result()     # raises; NCCL tells the other ranks

    def piece(rank, index, shape):
        future = client.submit(list.__getitem__, results[rank], index,
                               workers=[clique.workers[rank]])
        return da.from_delayed(future, shape, float)

    blocks = [None] * len(futures)
    for rank, numbers in enumerate(share):
        for index, number in enumerate(numbers):
            blocks[number] = piece(rank, index,
                                   (samples.chunks[0][number], columns))
    return (da.concatenate(blocks),
            piece(0, len(share[0]), (columns, columns)))


# %% [markdown]
# ## Two cliques, one after the other
#
# Every value is a whole number with a known sum, so what comes back can be
# compared with what must.


# %%
def on_host(array):
    return array.map_blocks(to_host, dtype=float).compute()


def demonstrate(client, ranks, rows, columns):
    workers = sorted(client.nthreads())
    samples = da.fromfunction(
        lambda row, column: (row * 7 + column * 31 + row * column % 5) % 97,
        shape=(rows, columns), dtype=float,
        chunks=(max(rows // 4, 1), columns))
    samples = client.persist(samples)
    host = samples.compute()
    want = host - host.mean(axis=0)
    # The first workers, then the last, in the other order.
    for members in workers[:ranks], workers[::-1][:ranks]:
        with NcclClique(client, members) as clique:
            centred, covariance = moments(clique, samples)
            difference = max(
                abs(on_host(centred) - want).max(),
                abs(on_host(covariance) - want.T @ want / (rows - 1)).max())
            assert difference < 1e-6, difference
            plugins = clique.run(mapped, "libnccl-net")
            del centred, covariance
        left = clique.run(mapped, "libnccl-net")
        print(json.dumps({"workers": members, "plugins": plugins,
                          "left": left}), flush=True)


def options():
    """In a notebook: the defaults, and SCHEDULER_FILE of the environment."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scheduler-file",
                        default=os.environ.get("SCHEDULER_FILE"))
    parser.add_argument("--cuda", action="store_true",
                        help="a LocalCUDACluster")
    parser.add_argument("--workers", type=int, default=2,
                        help="as many are started, or waited for")
    parser.add_argument("--ranks", type=int, default=2,
                        help="workers of one clique; each needs a GPU")
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--columns", type=int, default=500)
    return parser.parse_args(None if "__file__" in globals() else [])


def cluster(args):
    if args.cuda:
        from dask_cuda import LocalCUDACluster
        return LocalCUDACluster(n_workers=args.workers, protocol="ucxx",
                                dashboard_address=None)
    return LocalCluster(n_workers=args.workers, threads_per_worker=1,
                        protocol="ucxx", dashboard_address=None)


# %%
if __name__ == "__main__":
    args = options()
    if args.scheduler_file:
        client = Client(scheduler_file=args.scheduler_file)
    else:
        client = Client(cluster(args))
    with client:
        client.wait_for_workers(args.workers, timeout=60)
        demonstrate(client, args.ranks, args.rows, args.columns)
    if client.cluster:
        client.cluster.close()
