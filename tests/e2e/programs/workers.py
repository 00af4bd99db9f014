# SPDX-License-Identifier: BSD-3-Clause
"""
What each of NUMBER workers says of itself: a line of JSON, a list.

usage: workers.py SCHEDULER_FILE NUMBER [LIBRARY]

LIBRARY, of OpenMP, is loaded into each first: it may bind the thread that
loads it, and with it every thread that this one starts later.
"""
import ctypes
import json
import os
import sys

from distributed import Client

VARIABLES = ("CUDA_VISIBLE_DEVICES", "OMP_PLACES", "OMP_PROC_BIND", "LSB_",
             "JSM_", "OMPI_COMM_WORLD_", "PBS_", "PMI_", "MPI_LOCAL")


def load(library):
    ctypes.CDLL(library)


def facts(dask_worker):
    masks = set()
    for task in os.listdir("/proc/self/task"):
        masks.add(tuple(os.sched_getaffinity(int(task))))
    with open("/proc/self/maps") as maps:
        files = {os.path.basename(line.split()[-1]) for line in maps}
    return {
        "pid": os.getpid(), "host": os.uname().nodename,
        "parent": dask_worker.nanny,
        "threads": dask_worker.state.nthreads,
        "memory": dask_worker.memory_manager.memory_limit,
        "folder": dask_worker.local_directory,
        "moved": sum(entry["total"]
                     for entry in dask_worker.transfer_incoming_log),
        "masks": sorted(masks),
        "libraries": sorted(name for name in files if "weft" in name),
        "env": {name: value for name, value in os.environ.items()
                if name.startswith(VARIABLES)}}


def main():
    with Client(scheduler_file=sys.argv[1]) as client:
        client.wait_for_workers(int(sys.argv[2]), timeout=90)
        if sys.argv[3:]:
            client.run(load, sys.argv[3])
        print(json.dumps({"workers": list(client.run(facts).values())}))


if __name__ == "__main__":
    main()
