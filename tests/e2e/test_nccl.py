# SPDX-License-Identifier: BSD-3-Clause
"""
NCCL cliques of Dask workers, Dask over ucxx: both of weft's plugins in one
process.  Without a GPU NCCL and CuPy are test doubles (tests/e2e/double); the
example, its C function, Dask, ucxx and both plugins are the real ones.  On GPUs
(tests/gpu/clique.sh) nothing is doubled.
"""
import json
import os
import sys

from lib import nccl
from lib.cluster import Cluster
from lib.counters import payload_received
from lib.program import run
from lib.tap import check, main, test

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.abspath(f"{HERE}/../../examples")
RUNNER = f"{HERE}/programs/notebook.py"

# What the example has by default: a clique of two all-reduces the sums of the
# columns and their number, and reduces their products, doubles all.
COLUMNS = 500


def results(output):
    return [json.loads(line) for line in output.splitlines()
            if line.startswith("{")]


def of(rows, runtime):
    return [row for row in rows if row["runtime"] == runtime]


def clique_was_made_and_unmade(clique):
    """NCCL loaded weft from the path it was told, and let go of it if it can."""
    plugin = os.path.realpath(os.environ["E2E_NCCL_PLUGIN"])
    for files in clique["plugins"]:
        check([os.path.realpath(file) for file in files] == [plugin],
              f"a rank had {files}")
    left = [[]] * len(clique["plugins"]) if nccl.unloads() else \
        clique["plugins"]
    check(clique["left"] == left, f"left: {clique['left']}, not {left}")


def nccl_went_by_weft(rows, cliques):
    """Counted at the receivers; between two ranks, both ways alike."""
    want = cliques * 8 * (COLUMNS * COLUMNS + 2 * (COLUMNS + 1))
    got = payload_received(of(rows, "nccl"))
    # NCCL's protocol for short latency sends a flag with every word.
    most = 2.1 * want + 1e6 if nccl.GPU else 1.01 * want
    check(want <= got <= most, f"NCCL moved {want}, weft {got}")
    both = {row["pid"] for row in of(rows, "ucx")}
    alone = {row["pid"] for row in of(rows, "nccl")} - both
    check(not alone, f"no UCX over weft in {alone}")
    return got


@test(120)
def notebook_on_a_cluster_by_scheduler_file():
    """Three workers, cliques of two: the second has another worker."""
    with nccl.environment() as env, Cluster("weft", env=env) as cluster:
        for _ in range(3):
            cluster.worker()
        *cliques, dask = results(cluster.run(
            RUNNER, f"{EXAMPLES}/nccl_clique.ipynb", 3))
        check(len(cliques) == 2, f"{len(cliques)} cliques")
        first, second = (set(clique["workers"]) for clique in cliques)
        check(len(first | second) == 3, f"the same workers: {first}")
        for clique in cliques:
            clique_was_made_and_unmade(clique)
        cluster.stop()
        rows = cluster.counters()
        reduced = nccl_went_by_weft(rows, 2)
        members = {row["process"] for row in of(rows, "nccl")}
        check(members == {"worker1", "worker2", "worker3"},
              f"NCCL over weft in {members}")
        ucx = payload_received(of([row for row in rows if row["process"]
                                   in members], "ucx"))
        check(dask["moved"] <= ucx <= 1.2 * dask["moved"] + 1e6,
              f"Dask moved {dask['moved']}, weft under UCX {ucx}")
        return (f"NCCL {reduced / 1e6:.1f} MB, Dask {dask['moved'] / 1e6:.0f} "
                f"MB, weft under UCX {ucx / 1e6:.0f} MB")


def script(*args):
    """Two workers: the second clique has them in the other order."""
    with nccl.environment() as env:
        output, rows = run([sys.executable, f"{EXAMPLES}/nccl_clique.py",
                            *args], env, seconds=110)
        cliques = results(output)
        check(len(cliques) == 2 and
              cliques[0]["workers"] == cliques[1]["workers"][::-1],
              f"not two cliques: {output}")
        for clique in cliques:
            clique_was_made_and_unmade(clique)
        return f"NCCL {nccl_went_by_weft(rows, 2) / 1e6:.1f} MB"


@test(120)
def script_with_a_local_cluster():
    return script()


if nccl.GPU:
    @test(120)
    def script_with_a_local_cuda_cluster():
        return script("--cuda")


if __name__ == "__main__":
    main()
