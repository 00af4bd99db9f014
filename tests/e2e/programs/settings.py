# SPDX-License-Identifier: BSD-3-Clause
"""
A scheduler and two workers in one process; says what UCX was configured with,
and how much the workers exchanged.  Where there is no GPU, the pool of GPU
memory that Dask asks RMM for is noted, not made.

usage: settings.py PROTOCOL
"""
import json
import os
import sys

import numpy as np
from distributed import Client, LocalCluster

SIZE = 1 << 20
NAMES = ("TLS", "NET_DEVICES", "SOCKADDR_TLS_PRIORITY", "RNDV_THRESH")


def note_pool():
    import rmm
    asked = []
    if not os.path.exists("/dev/nvidiactl"):
        rmm.reinitialize = lambda **how: asked.append(how["initial_pool_size"])
    return asked


def main():
    pools = note_pool()
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False,
                      protocol=sys.argv[1], host="127.0.0.1",
                      dashboard_address=None) as cluster, \
            Client(cluster) as client:
        here, there = client.scheduler_info()["workers"]
        block = client.submit(np.arange, SIZE, workers=[here], pure=False)
        total = client.submit(np.sum, block, workers=[there],
                              pure=False).result()
        assert total == SIZE * (SIZE - 1) // 2, total
        moved = sum(entry["total"] for worker in cluster.workers.values()
                    for entry in worker.transfer_incoming_log)
        import ucxx
        config = ucxx.get_config()
        print(json.dumps({
            **{name: config[name] for name in NAMES},
            "pool": str(pools[-1]) if pools else None,
            "address": ucxx.get_address(),
            "mode": ucxx.core._get_ctx().progress_mode, "moved": moved}))


if __name__ == "__main__":
    main()
