# SPDX-License-Identifier: BSD-3-Clause
"""
Transpose and sum of a Dask array that lives on GPUs, every element checked.

  ucx_dask.py client SCHEDULER_FILE ARM    a cluster that is there
  ucx_dask.py local ARM                    a LocalCUDACluster of two workers

Prints a line of JSON.  UCX_DASK_NUMPY=1: with numpy, for a dry run.
"""
import json
import os
import sys
import time

import dask.array as da
from distributed import Client

NUMPY = os.environ.get("UCX_DASK_NUMPY") == "1"
SIZE = int(os.environ.get("UCX_DASK_SIZE", 16000))
CHUNK = SIZE // 8
ROUNDS = 3


def module():
    import importlib
    return importlib.import_module("numpy" if NUMPY else "cupy")


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


def run(client, arm):
    client.wait_for_workers(2, timeout=40)
    xp = module()
    chunks = ((CHUNK,) * 8,) * 2
    bytes_moved, best = 0, None
    for _ in range(ROUNDS):
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
        bytes_moved += x.nbytes
        del x, y
    print(json.dumps({"arm": arm, "what": "transpose and sum",
                      "array_bytes": SIZE * SIZE * 8, "rounds": ROUNDS,
                      "best_s": round(best, 4),
                      "GB_per_s": round(SIZE * SIZE * 8 / best / 1e9, 3)}),
          flush=True)


def local(arm):
    from dask_cuda import LocalCUDACluster
    with LocalCUDACluster(n_workers=2, protocol="ucx",
                          enable_tcp_over_ucx=True, enable_nvlink=True,
                          rmm_pool_size="6GB", dashboard_address=None,
                          ) as cluster, Client(cluster) as client:
        run(client, arm)


def main():
    if sys.argv[1] == "local":
        local(sys.argv[2])
        return
    with Client(scheduler_file=sys.argv[2], timeout=40) as client:
        run(client, sys.argv[3])
        client.shutdown()


if __name__ == "__main__":
    main()
