# SPDX-License-Identifier: BSD-3-Clause
"""
Ranks of rapidsmpf's UCXX communicator meet again and again: none leaves a
barrier before all have come. They are what rrun starts, or the workers of a
Dask cluster, the first of which makes the address that the others get.

usage: barriers.py FOLDER [SCHEDULER_FILE]
"""
import os
import sys

TIMES = 200


def meet(comm, folder):
    from rapidsmpf.communicator.ucxx import barrier
    for turn in range(TIMES):
        with open(f"{folder}/{turn}.{comm.rank}", "w"):
            pass
        barrier(comm)
        for rank in range(comm.nranks):
            assert os.path.exists(f"{folder}/{turn}.{rank}"), (turn, rank)
    return comm.rank


def options():
    from rapidsmpf.config import Options, get_environment_variables
    return Options(get_environment_variables())


def become_rank(ranks, root):
    from distributed import get_worker
    from rapidsmpf.communicator.ucxx import new_communicator
    from rapidsmpf.progress_thread import ProgressThread
    comm = new_communicator(ranks, None, root, options(), ProgressThread())
    get_worker().rapidsmpf = comm
    return comm


def be_first(ranks):
    from rapidsmpf.communicator.ucxx import get_root_ucxx_address
    return get_root_ucxx_address(become_rank(ranks, None))


def take_part(ranks, root, folder):
    """The first is to wait in its barrier while the others join."""
    import ucxx._lib.libucxx as ucx
    from distributed import get_worker
    comm = getattr(get_worker(), "rapidsmpf", None) or become_rank(
        ranks, ucx.UCXAddress.create_from_buffer(root))
    return meet(comm, folder)


def leave():
    from distributed import get_worker
    del get_worker().rapidsmpf


def by_dask(folder, scheduler_file):
    from distributed import Client
    with Client(scheduler_file=scheduler_file) as client:
        client.wait_for_workers(2, timeout=60)
        workers = list(client.scheduler_info()["workers"])
        ranks = len(workers)

        def on(where, function, *args):
            return client.gather([
                client.submit(function, *args, workers=[worker], pure=False)
                for worker in where])

        [root] = on(workers[:1], be_first, ranks)
        met = on(workers, take_part, ranks, root, folder)
        on(workers, leave)
    assert sorted(met) == list(range(ranks)), met
    print("ranks", ranks)


def by_rrun(folder):
    from rapidsmpf.bootstrap import create_ucxx_comm
    from rapidsmpf.progress_thread import ProgressThread
    comm = create_ucxx_comm(ProgressThread(), options=options())
    print("rank", meet(comm, folder), "of", comm.nranks)


if __name__ == "__main__":
    (by_dask if sys.argv[2:] else by_rrun)(*sys.argv[1:])
