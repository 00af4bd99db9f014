# SPDX-License-Identifier: BSD-3-Clause
"""
Runs the code cells of a notebook as Jupyter does, in one namespace and in the
notebook's folder, and says what Dask moved between workers meanwhile.

usage: notebook.py SCHEDULER_FILE NOTEBOOK WORKERS
"""
import json
import os
import sys

from distributed import Client


def moved(dask_worker):
    return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)


def main():
    scheduler_file, notebook, workers = sys.argv[1:]
    with Client(scheduler_file=scheduler_file) as client:
        client.wait_for_workers(int(workers), timeout=60)
        os.environ["SCHEDULER_FILE"] = scheduler_file
        os.chdir(os.path.dirname(notebook))
        with open(notebook) as file:
            cells = json.load(file)["cells"]
        namespace = {"__name__": "__main__"}
        for cell in cells:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), cell["id"], "exec"),
                     namespace)
        print(json.dumps({"moved": sum(client.run(moved).values())}))


if __name__ == "__main__":
    main()
