# SPDX-License-Identifier: BSD-3-Clause
"""
A LocalCUDACluster with all of UCX's transports, as dask-cuda's documentation
makes one; without a pool of GPU memory, which takes a GPU.
"""
import os

# The options here are of the client and, as their parent, of the others.
os.environ["DASK_UCX__CUDA_COPY"] = "True"
os.environ["DASK_UCX__TCP"] = "True"
os.environ["DASK_UCX__NVLINK"] = "True"
os.environ["DASK_UCX__INFINIBAND"] = "True"
os.environ["DASK_UCX__NET_DEVICES"] = "auto"

import json

import numpy as np
from dask.distributed import Client
from dask_cuda import LocalCUDACluster

SIZE = 4 << 20


def visible():
    return os.environ["CUDA_VISIBLE_DEVICES"]


def moved(dask_worker):
    return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)


if __name__ == "__main__":
    with LocalCUDACluster(
            protocol="ucx", interface="ib0", enable_tcp_over_ucx=True,
            enable_nvlink=True, enable_infiniband=True, enable_rdmacm=True,
            dashboard_address=None) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        here, there = client.scheduler_info()["workers"]
        block = client.submit(np.arange, SIZE, workers=[here], pure=False)
        total = client.submit(np.sum, block, workers=[there],
                              pure=False).result()
        assert total == SIZE * (SIZE - 1) // 2, total
        print(json.dumps({
            "moved": sum(client.run(moved).values()),
            "at": cluster.scheduler_address,
            "visible": sorted(client.run(visible).values())}))
