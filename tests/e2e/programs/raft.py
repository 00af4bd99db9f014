# SPDX-License-Identifier: BSD-3-Clause
"""
raft-dask's Comms between two workers: NCCL's unique id is made in the scheduler,
each worker has a communicator and UCX endpoints to all. On a GPU RAFT's own
tests of both are run, and a frame of cuDF is reduced. Without one there is no
handle, which takes CUDA: the communicator reduces by clique_moments(), and the
endpoints carry a block each.

usage: raft.py SCHEDULER_FILE
"""
import ctypes
import json
import os
import sys

from distributed import Client
from raft_dask.common import Comms

GPU = os.path.exists("/dev/nvidiactl")
SIZE = 4 << 20
COLUMNS = 128


def without_a_handle():
    from raft_dask.common import comms
    comms._func_build_handle_p2p = lambda *args, **kwargs: None


async def exchange(session, size, dask_worker):
    """What this rank made of both ways; the same on all."""
    import asyncio

    import cupy
    import numpy
    from nccl_moments import clique_moments
    from raft_dask.common.comms import get_raft_comm_state
    from raft_dask.common.ucx import UCX
    state = get_raft_comm_state(session, dask_worker=dask_worker)
    rank, ranks = state["wid"], state["nworkers"]
    comm = ctypes.c_void_p.from_address(state["nccl"].get_comm()).value
    stream = cupy.cuda.Stream()
    mine = cupy.asarray(numpy.arange(size, dtype=float) * (rank + 1))
    total, product = cupy.empty_like(mine), cupy.zeros((1,))

    def address(array):
        return array.__cuda_array_interface__["data"][0]

    status = clique_moments(comm, 0, address(mine), address(total), size,
                            address(product), address(product), 1, stream.ptr)
    assert status == 0, status
    while not stream.done:
        await asyncio.sleep(0.001)
    factor = ranks * (ranks + 1) // 2
    assert (cupy.asnumpy(total) == numpy.arange(size) * factor).all()

    theirs = [numpy.full(size, -1.0) for _ in range(ranks)]
    block = numpy.full(size, float(rank))
    await asyncio.gather(
        *(ep.send(block) for ep in state["ucp_eps"]),
        *(ep.recv(into) for ep, into in zip(UCX.get()._server_endpoints,
                                            theirs)))
    assert sorted(into[0] for into in theirs) == list(range(ranks)), theirs
    assert all((into == into[0]).all() for into in theirs)
    return rank, ranks


def on_a_gpu(session, dask_worker):
    from raft_dask.common import (local_handle, perform_test_comms_allreduce,
                                  perform_test_comms_send_recv)
    handle = local_handle(session, dask_worker)
    assert perform_test_comms_allreduce(handle, 0)
    assert perform_test_comms_send_recv(handle, 100)


def part(rank):
    import cudf
    import cupy
    rows = cupy.arange(SIZE // 8 // COLUMNS)[:, None]
    return cudf.DataFrame((rows * 7.0 + cupy.arange(COLUMNS)) * (rank + 1),
                          columns=[f"c{i}" for i in range(COLUMNS)])


def summed(session, frame):
    """The sum of both ranks' frames."""
    import cupy
    from distributed import get_worker
    from raft_dask.common.comms import get_raft_comm_state
    comms = get_raft_comm_state(session, dask_worker=get_worker())["nccl"]
    mine = cupy.ascontiguousarray(frame.values)
    total = cupy.empty_like(mine)
    stream = cupy.cuda.Stream()
    cupy.cuda.runtime.deviceSynchronize()
    double, plus = 8, 0  # nccl.h
    status = ctypes.CDLL("libnccl.so.2").ncclAllReduce(
        ctypes.c_void_p(mine.data.ptr), ctypes.c_void_p(total.data.ptr),
        ctypes.c_size_t(mine.size), double, plus,
        ctypes.c_void_p.from_address(comms.get_comm()),
        ctypes.c_void_p(stream.ptr))
    assert status == 0, status
    stream.synchronize()
    return type(frame)(total, columns=frame.columns)


def here(frame):
    return frame


def frame(client, session):
    """Each rank's part begins with the other, so UCX carries it to NCCL."""
    import dask.dataframe as dd
    from distributed import wait
    a, b = client.scheduler_info()["workers"]
    parts = [client.submit(part, rank, workers=[where], pure=False)
             for rank, where in enumerate((b, a))]
    parts = [client.submit(here, mine, workers=[where], pure=False)
             for mine, where in zip(parts, (a, b))]
    wait(parts)
    sums = dd.from_delayed([client.submit(summed, session, mine, pure=False,
                                          workers=[where])
                            for mine, where in zip(parts, (a, b))])
    assert type(sums._meta).__module__.startswith("cudf"), type(sums._meta)
    got = sums.compute().to_pandas()
    due = client.submit(part, 2, workers=[a]).result().to_pandas()
    assert (got.values.reshape(2, *due.shape) == due.values).all()


def main():
    with Client(scheduler_file=sys.argv[1]) as client:
        client.wait_for_workers(2, timeout=60)
        if not GPU:
            client.run(without_a_handle)
        comms = Comms(comms_p2p=True, client=client)
        comms.init()
        if GPU:
            client.run(on_a_gpu, comms.sessionId)
            frame(client, comms.sessionId)
        else:
            done = client.run(exchange, comms.sessionId, SIZE // 8)
            assert sorted(done.values()) == [(0, 2), (1, 2)], done
        comms.destroy()
        print(json.dumps({"bytes": SIZE}))


if __name__ == "__main__":
    main()
