# SPDX-License-Identifier: BSD-3-Clause
"""
cuDF's frames on a Dask cluster that runs, every row checked.

  rapids_dask.py SCHEDULER_FILE merge [ROWS]          dask-cudf
  rapids_dask.py SCHEDULER_FILE polars FOLDER [ROWS]  cudf-polars' engine for Dask

A line of JSON says how many bytes Dask fetched from other workers.
"""
import json
import sys
import time

from distributed import Client

PARTS = 8
ROUNDS = 4
FACTOR = 2654435761


def part(number, rows, column, factor, step, turn):
    """
    The ids number, number + step, ... : each side has its own order. Those of
    another @turn have other keys, so that Dask computes again.
    """
    import cudf
    import cupy
    ids = (cupy.arange(rows, dtype="i8") * PARTS + number) * step % (rows * PARTS)
    return cudf.DataFrame({"id": ids, column: ids * factor})


def verdict(frame):
    import cudf
    good = (frame["x"] == frame["id"] * 3) & (frame["y"] == frame["id"] * 5)
    return cudf.DataFrame({"rows": [len(frame)], "bad": [int((~good).sum())],
                           "sum": [int(frame["id"].sum())],
                           "ids": [frame["id"].nunique()]})


def fetched(dask_worker):
    return sum(entry["total"] for entry in dask_worker.transfer_incoming_log)


def merge(client, rows=1 << 22):
    import dask
    import dask.dataframe as dd
    from distributed import wait
    dask.config.set({"dataframe.shuffle.method": "tasks"})
    took = []
    for turn in range(ROUNDS):
        merged = None
        # 7 and 11 do not divide the number of ids: all, in another order
        left, right = (client.persist(dd.from_map(part, range(PARTS), rows=rows,
                                                  column=column, factor=factor,
                                                  step=step, turn=turn))
                       for column, factor, step in (("x", 3, 7), ("y", 5, 11)))
        wait([left, right])
        start = time.monotonic()
        merged = client.persist(left.merge(right, on="id"))
        wait(merged)
        took.append(round(time.monotonic() - start, 3))
    told = merged.map_partitions(verdict).compute().to_pandas()
    total = rows * PARTS
    assert type(merged._meta).__module__.startswith("cudf"), type(merged._meta)
    assert told["bad"].sum() == 0, told
    assert told["rows"].sum() == told["ids"].sum() == total, told
    assert told["sum"].sum() == total * (total - 1) // 2, told
    return {"rows": total, "first_s": took[0], "best_s": min(took)}


def polars(client, folder, rows=1 << 22):
    import cudf_polars.engine.dask as engines
    import numpy as np
    import polars as pl
    from cudf_polars.engine.hardware_binding import HardwareBindingPolicy
    ids = np.arange(rows)
    for name, factor, step in ("x", 3, 7), ("y", 5, 11):
        order = ids * step % rows
        for number in range(PARTS):
            mine = order[number::PARTS]
            pl.DataFrame({"id": mine, name: mine * factor}).write_parquet(
                f"{folder}/{name}.{number}.parquet", compression="uncompressed")
    query = (pl.scan_parquet(f"{folder}/x.*.parquet")
             .join(pl.scan_parquet(f"{folder}/y.*.parquet"), on="id")
             .with_columns((pl.col("id") * FACTOR % 1000003).alias("group"))
             .group_by("group").agg(pl.col("x").sum(), pl.col("y").sum()))
    with engines.DaskEngine(
            dask_client=client,
            executor_options={"max_rows_per_partition": rows // 8,
                              "target_partition_size": 1 << 22,
                              "broadcast_limit": 1},
            engine_options={"raise_on_fail": True, "allow_gpu_sharing": True,
                            "hardware_binding": HardwareBindingPolicy(
                                enabled=False)}) as engine:
        start = time.monotonic()
        got = query.collect(engine=engine)
        took = time.monotonic() - start
    due = query.collect()
    assert got.sort("group").equals(due.sort("group")), (got, due)
    return {"rows": rows, "groups": len(got), "first_s": round(took, 3)}


def main():
    scheduler_file, program, *args = sys.argv[1:]
    with Client(scheduler_file=scheduler_file) as client:
        client.wait_for_workers(2, timeout=45)
        said = {"merge": merge, "polars": polars}[program](
            client, *(int(arg) if arg.isdigit() else arg for arg in args))
        said["fetched"] = sum(client.run(fetched).values())
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
