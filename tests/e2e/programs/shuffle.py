# SPDX-License-Identifier: BSD-3-Clause
"""
A P2P shuffle of a DataFrame, checked row by row.

usage: shuffle.py SCHEDULER_FILE [ROWS [PARTITIONS [WORKERS]]]
"""
import json
import sys

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client


def part(number, rows):
    """Rows whose columns are all told by `id`, spread over every group."""
    ids = np.arange(number * rows, (number + 1) * rows, dtype="i8")
    return pd.DataFrame({
        "id": ids,
        "group": (ids * 2654435761 % 1000003).astype("i8"),
        "x": ids * 0.5,
        "y": -ids.astype("f8"),
    })


def verdict(frame):
    """Of one output partition: is every row whole, and which are here?"""
    good = ((frame["group"] == frame["id"] * 2654435761 % 1000003)
            & (frame["x"] == frame["id"] * 0.5)
            & (frame["y"] == -frame["id"].astype("f8")))
    return pd.DataFrame({
        "rows": [len(frame)], "bad": [int((~good).sum())],
        "sum": [int(frame["id"].sum())],
        "groups": [frame["group"].nunique()],
    })


def shuffled(dask_worker):
    """Bytes of shards that left this worker, as Dask's own metrics say."""
    return sum(value for key, value in dask_worker.digests_total.items()
               if key[0] == "p2p" and "bytes" in key and "process" in key
               and any("background-comms" in str(part) for part in key))


def main():
    rows, partitions, workers = (
        int(arg) for arg in (sys.argv[2:] + ["2000000", "20", "2"]
                             [len(sys.argv) - 2:]))
    dask.config.set({"dataframe.shuffle.method": "p2p"})
    with Client(scheduler_file=sys.argv[1]) as client:
        client.wait_for_workers(workers, timeout=60)
        each = rows // partitions
        df = dd.from_map(part, range(partitions), rows=each)
        out = df.shuffle("group", npartitions=partitions)
        told = out.map_partitions(verdict).compute()
        sent = client.run(shuffled)
        total = each * partitions
        assert told["bad"].sum() == 0, told
        assert told["rows"].sum() == total, told
        assert told["sum"].sum() == total * (total - 1) // 2, told
        # A group lies whole in one partition, or it would count twice.
        whole = len(np.unique(np.arange(total) * 2654435761 % 1000003))
        assert told["groups"].sum() == whole, (told, whole)
        print(json.dumps({"frame_bytes": total * 32,
                          "moved": sum(sent.values())}))


if __name__ == "__main__":
    main()
