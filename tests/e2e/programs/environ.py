# SPDX-License-Identifier: BSD-3-Clause
"""
A client that has UCX's settings from os.environ alone, set before anything else is
imported; sums what two workers exchange.

usage: environ.py SCHEDULER_FILE NAME=VALUE...
"""
import os
import sys

for setting in sys.argv[2:]:
    name, value = setting.split("=", 1)
    assert name not in os.environ, name
    os.environ[name] = value

import json

import numpy as np
from distributed import Client

SIZE = 4 << 20


def moved(dask_worker):
    return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)


def main():
    with open(sys.argv[1]) as file:
        address = json.load(file)["address"]
    with Client(address) as client:
        client.wait_for_workers(2, timeout=60)
        here, there = client.scheduler_info()["workers"]
        for source, target in (here, there), (there, here):
            block = client.submit(np.arange, SIZE, workers=[source],
                                  pure=False)
            total = client.submit(np.sum, block, workers=[target],
                                  pure=False).result()
            assert total == SIZE * (SIZE - 1) // 2, total
        # to the client itself, too
        block = client.submit(np.arange, SIZE, workers=[here], pure=False)
        assert (block.result() == np.arange(SIZE)).all()
        print(json.dumps({"total": sum(client.run(moved).values()),
                          "address": address, "client": SIZE * 8}))


if __name__ == "__main__":
    main()
