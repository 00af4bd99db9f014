# SPDX-License-Identifier: BSD-3-Clause
"""
A rank of rapidsmpf that shuffles cuDF's tables on a GPU, every row checked.  Ranks
are started as rrun starts them.

  rapids_ranks.py shuffle FOLDER [ROWS]  rapidsmpf's shuffler, with cudf-streaming
  rapids_ranks.py polars FOLDER [ROWS]   cudf-polars: a join and a sum by group
  rapids_ranks.py pytest FOLDER          rapidsmpf's own tests, of its sources

ROWS: of each rank, a multiple of 8.  The ids that a rank ended up with are written
to FOLDER/NAME.RANK as bits; a line of JSON says the rest.
"""
import json
import sys
import time

ROUNDS = 5
PARTITIONS = 16
GROUPS = 1000003
FACTOR = 2654435761


def communicator():
    from rapidsmpf.bootstrap import create_ucxx_comm
    from rapidsmpf.config import Options, get_environment_variables
    from rapidsmpf.progress_thread import ProgressThread
    return create_ucxx_comm(ProgressThread(),
                            options=Options(get_environment_variables()))


def tell(**what):
    print(json.dumps(what), flush=True)


def note(folder, name, rank, ids, total):
    """Which of @total ids are here; each once."""
    import numpy as np
    seen = np.bincount(ids, minlength=total)
    assert len(seen) == total and seen.max() <= 1, f"{name}: an id twice"
    np.packbits(seen.astype("u1")).tofile(f"{folder}/{name}.{rank}")


def made(first, rows):
    import cupy
    import pylibcudf as plc
    ids = cupy.arange(first, first + rows, dtype="i8")
    return plc.Table([plc.Column.from_cuda_array_interface(column)
                      for column in (ids, ids * FACTOR % GROUPS)])


def shuffle(folder, rows=1 << 25):
    import cupy
    import pylibcudf as plc
    import rmm
    from cudf_streaming.partition_utils import (partition_and_pack,
                                                unpack_and_concat)
    from rapidsmpf.communicator.ucxx import barrier
    from rapidsmpf.memory.buffer_resource import BufferResource
    from rapidsmpf.shuffler import Shuffler
    from rmm.pylibrmm.stream import DEFAULT_STREAM

    comm = communicator()
    br = BufferResource(rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(),
                                                  initial_pool_size=8 << 30))
    rmm.mr.set_current_device_resource(br.device_mr_adaptor())
    total, crossed, took = rows * comm.nranks, 0, []
    for turn in range(ROUNDS):
        # no value comes twice: one that is left over from before is noticed
        base = turn * total
        table = made(base + comm.rank * rows, rows)
        packed = partition_and_pack(table, (0,), PARTITIONS, DEFAULT_STREAM, br)
        cupy.cuda.runtime.deviceSynchronize()
        barrier(comm)
        start = time.monotonic()
        shuffler = Shuffler(comm, turn, PARTITIONS, br)
        shuffler.insert_chunks(packed)
        shuffler.insert_finished()
        shuffler.wait()
        took.append(time.monotonic() - start)
        parts = [unpack_and_concat(shuffler.extract(number), DEFAULT_STREAM, br)
                 for number in shuffler.local_partitions()]
        arrived = cupy.concatenate([cupy.from_dlpack(plc.interop.to_dlpack(part))
                                    for part in parts if part.num_rows()])
        ids, groups = arrived[:, 0], arrived[:, 1]
        assert bool((groups == ids * FACTOR % GROUPS).all()), "wrong values"
        note(folder, f"shuffle{turn}", comm.rank, cupy.asnumpy(ids - base), total)
        crossed += 16 * int(((ids - base) // rows != comm.rank).sum())
        shuffler.shutdown()
        barrier(comm)
    tell(rank=comm.rank, crossed=crossed, best_s=min(took),
         each=16 * rows, rounds=ROUNDS)


def polars(folder, rows=1 << 22):
    import cudf_polars.engine.spmd as spmd
    import numpy as np
    import polars as pl
    options = {"max_rows_per_partition": rows // 8, "broadcast_limit": 1}
    with spmd.SPMDEngine(executor_options=options,
                         engine_options={"raise_on_fail": True,
                                         "allow_gpu_sharing": True}) as engine:
        rank, ranks = engine.rank, engine.nranks
        total = rows * ranks

        def frame(owner, name, factor):
            ids = np.arange(owner * rows, (owner + 1) * rows)
            return pl.LazyFrame({"id": ids, name: ids * factor})

        # what belongs together begins on different ranks
        left, right = frame(rank, "x", 3), frame((rank + 1) % ranks, "y", 5)
        joined = left.join(right, on="id").collect(engine=engine)
        ids = joined["id"].to_numpy()
        assert (joined["x"].to_numpy() == ids * 3).all()
        assert (joined["y"].to_numpy() == ids * 5).all()
        note(folder, "join", rank, ids, total)

        summed = left.with_columns(
            (pl.col("id") * FACTOR % GROUPS).alias("group")).group_by(
                "group").agg(pl.col("x").sum()).collect(engine=engine)
        groups = summed["group"].to_numpy()
        ids = np.arange(total)
        due = np.bincount(ids * FACTOR % GROUPS, ids * 3, GROUPS)
        assert (summed["x"].to_numpy() == due[groups]).all()
        note(folder, "groups", rank, groups, GROUPS)
        tell(rank=rank, joined=len(joined), groups=len(groups))


def pytest(folder):
    """Its fixture makes the communicator by MPI, which the wheels lack."""
    import shutil
    import tempfile

    import pytest as module
    with tempfile.TemporaryDirectory() as mine:
        tests = shutil.copytree(folder, f"{mine}/tests")
        with open(f"{tests}/conftest.py", "a") as file:
            file.write(FIXTURE)
        status = module.main([
            "-q", "-rfE", "--tb=short", "--import-mode=importlib",
            *(f"{tests}/{where}test_{what}.py" for where in ("", "streaming/")
              for what in ("allgather", "shuffler", "sparse_alltoall"))])
    sys.exit(status)


FIXTURE = '''

@pytest.fixture(scope="session")
def _ranks():
    from rapidsmpf.bootstrap import create_ucxx_comm
    return create_ucxx_comm(ProgressThread(),
                            options=Options(get_environment_variables()))


@pytest.fixture
def comm(_ranks):
    from rapidsmpf.communicator.ucxx import barrier
    barrier(_ranks)
    yield _ranks
    barrier(_ranks)
'''


if __name__ == "__main__":
    {"shuffle": shuffle, "polars": polars, "pytest": pytest}[sys.argv[1]](
        sys.argv[2], *map(int, sys.argv[3:]))
