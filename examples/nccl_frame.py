# SPDX-License-Identifier: BSD-3-Clause
"""
A Dask frame in, a Dask frame out, through an NCCL clique: the columns less their
means, and their covariance. cuDF's partitions stay on their GPUs; pandas' are
copied there and back.

    python nccl_frame.py                           # LocalCluster, pandas
    python nccl_frame.py --cudf                    # LocalCUDACluster, cuDF
    python nccl_frame.py --scheduler-file FILE     # a cluster that runs
"""
import json

import dask.dataframe as dd
import numpy as np
from distributed import Client

import nccl_clique


def as_frame(values, like, index=None):
    """A block of CuPy's as a frame of the kind of @like."""
    import cupy
    if not type(like).__module__.startswith("cudf"):
        values = cupy.asnumpy(values)
    return type(like)(values, columns=like.columns, index=index)


def as_values(part):
    return part.values


def frame_moments(clique, frame):
    """
    @frame: a Dask frame of numbers, pandas' or cuDF's. Returns two of the same
    kind: @frame less its means, in its partitions, and the covariance.
    """
    client, meta = clique.client, frame._meta.astype(float)
    parts = client.compute(frame.to_delayed())
    lengths = client.gather(client.map(len, parts, pure=False))
    arrays = [nccl_clique.da.from_delayed(
        client.submit(as_values, part, pure=False),
        (length, len(meta.columns)), float)
        for part, length in zip(parts, lengths)]
    centred, covariance = nccl_clique.moments(
        clique, nccl_clique.da.concatenate(arrays))
    indices = client.map(lambda part: part.index, parts, pure=False)
    blocks = client.compute(list(centred.to_delayed().ravel()))
    return (dd.from_delayed(client.map(as_frame, blocks, [meta] * len(parts),
                                       indices, pure=False), meta=meta),
            dd.from_delayed([client.submit(
                as_frame, client.compute(covariance.to_delayed()[0, 0]), meta,
                meta.columns, pure=False)], meta=meta))


def samples(part, rows, width, kind):
    """Whole numbers with known sums."""
    import importlib
    row = np.arange(part * rows, (part + 1) * rows)[:, None]
    column = np.arange(width)[None, :]
    values = (row * 7 + column * 31 + row * column % 5) % 97
    return importlib.import_module(kind).DataFrame(
        values, columns=[f"c{i}" for i in range(width)], index=row[:, 0])


def on_host(frame):
    return frame.to_pandas() if hasattr(frame, "to_pandas") else frame


def host_name(dask_worker):
    import socket
    return socket.gethostname()


def moved(dask_worker):
    return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)


def demonstrate(client, ranks, parts, rows, columns, kind):
    frame = client.persist(dd.from_map(samples, range(parts), rows=rows,
                                       width=columns, kind=kind))
    host = on_host(frame.compute())
    members = sorted(client.nthreads())[:ranks]
    with nccl_clique.NcclClique(client, members) as clique:
        centred, covariance = frame_moments(clique, frame)
        assert type(centred._meta) is type(frame._meta), type(centred._meta)
        want = host - host.mean()
        for got, right in (centred, want), (covariance, host.cov()):
            got = on_host(got.compute())
            assert list(got.columns) == list(right.columns)
            assert list(got.index) == list(right.index)
            difference = np.abs(got.values - right.values).max()
            assert difference < 1e-6, difference
        print(json.dumps({
            "kind": kind, "moved": sum(client.run(moved).values()),
            "hosts": sorted(set(client.run(host_name).values())),
            "bindings": clique.run(nccl_clique.mapped, "nccl_moments")}),
            flush=True)


def main():
    parser = nccl_clique.argparse.ArgumentParser()
    parser.add_argument("--scheduler-file")
    parser.add_argument("--cudf", action="store_true")
    parser.add_argument("--workers", type=int, default=2,
                        help="as many are started, or waited for")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rows", type=int, default=1000, help="per partition")
    parser.add_argument("--columns", type=int, default=200)
    args = parser.parse_args()
    args.cuda = args.cudf
    if args.scheduler_file:
        client = Client(scheduler_file=args.scheduler_file)
    else:
        client = Client(nccl_clique.cluster(args))
    with client:
        client.wait_for_workers(args.workers, timeout=60)
        client.upload_file(nccl_clique.__file__)
        demonstrate(client, args.ranks, 4, args.rows, args.columns,
                    "cudf" if args.cudf else "pandas")
    if client.cluster:
        client.cluster.close()


if __name__ == "__main__":
    main()
