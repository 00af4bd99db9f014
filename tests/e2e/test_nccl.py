# SPDX-License-Identifier: BSD-3-Clause
"""
NCCL cliques of Dask workers, Dask over ucxx: both of weft's plugins in one
process.  Without a GPU NCCL and CuPy are test doubles (tests/e2e/double); the
example, its C function, Dask, ucxx and both plugins are the real ones.  On GPUs
(tests/gpu/clique.sh) nothing is doubled.
"""
import json
import os
import subprocess
import sys

from lib import nccl
from lib.cluster import Cluster
from lib.counters import payload_received, to_others
from lib.netns import Network
from lib.program import clean_env, run
from lib.tap import Skip, check, main, test

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.abspath(f"{HERE}/../../examples")
RUNNER = f"{HERE}/programs/notebook.py"

# What the example has by default: a clique of two all-reduces the sums of the
# columns and their number, and reduces their products, doubles all.
COLUMNS = 500
FRAME_COLUMNS = 200


def results(output):
    return [json.loads(line) for line in output.splitlines()
            if line.startswith("{")]


def of(rows, runtime):
    return [row for row in rows if row["runtime"] == runtime]


def clique_was_made_and_unmade(clique):
    """NCCL loaded weft from the path it was given, and let go of it if it can."""
    plugin = os.path.realpath(os.environ["E2E_NCCL_PLUGIN"])
    for files in clique["plugins"]:
        check([os.path.realpath(file) for file in files] == [plugin],
              f"a rank had {files}")
    left = [[]] * len(clique["plugins"]) if nccl.unloads() else \
        clique["plugins"]
    check(clique["left"] == left, f"left: {clique['left']}, not {left}")


def nccl_went_by_weft(rows, cliques, columns=COLUMNS, more=0):
    """Counted at the receivers; between two ranks, both ways alike."""
    want = cliques * 8 * (columns * columns + 2 * (columns + 1)) + more
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


def frame(cluster, *args):
    """examples/nccl_frame.py on a cluster that runs."""
    program = cluster.spawn(
        "frame", [sys.executable, f"{EXAMPLES}/nccl_frame.py",
                  "--scheduler-file", cluster.scheduler_file, "--columns",
                  str(FRAME_COLUMNS), *args], host=cluster.host(0))
    check(program.wait(80) == 0, f"failed:\n{program.output()}")
    return results(program.output())[-1]


def cannot_import(module, env):
    """None, or why not."""
    done = subprocess.run([sys.executable, "-c", f"import {module}"],
                          env=clean_env(env), capture_output=True, text=True,
                          timeout=60)
    return done.stderr.strip().splitlines()[-1] if done.returncode else None


@test(150)
def frame_across_hosts_by_cython_and_the_comms_of_raft():
    """
    A Dask frame in and out, the C function bound by Cython, libraries in
    $CONDA_PREFIX/lib, a worker on each of two hosts; then raft-dask's Comms
    with the unique id from the scheduler's host, NCCL and UCX in each worker.
    """
    if nccl.GPU:
        raise Skip("on GPUs by the tests of one host")
    with nccl.environment() as env, Network(3) as net:
        env.update(NCCL_SOCKET_IFNAME="eth0", CUDA_VISIBLE_DEVICES="0")
        python = nccl.install_binding(env["CONDA_PREFIX"])
        env["PYTHONPATH"] += f":{python}"
        with Cluster("weft", "ucxx", net.hosts, env) as cluster:
            cluster.worker()
            cluster.worker()
            said = frame(cluster)
            check(said["kind"] == "pandas", f"frames of {said['kind']}")
            check(said["hosts"] == [host.name for host in net.hosts[1:]],
                  f"workers on {said['hosts']}")
            for files in said["bindings"]:
                check(any(file.startswith(python) for file in files),
                      f"not bound by Cython: {files}")
            missing = cannot_import("raft_dask.common", env)
            raft = 0
            if not missing:
                raft = results(cluster.run(f"{HERE}/programs/raft.py",
                                           name="raft"))[-1]["bytes"]
            cluster.stop()
            rows = cluster.counters("worker*")
            # raft's: each rank's block to the other and the sum back, and
            # one number more
            reduced = nccl_went_by_weft(rows, 1, FRAME_COLUMNS,
                                        2 * (raft + 8 * bool(raft)))
            across = {row["where"].rsplit(":", 1)[0]
                      for row in of(rows, "nccl")}
            check(across == {host.address for host in net.hosts[1:]},
                  f"NCCL between {across}")
            ucx = payload_received(to_others(of(rows, "ucx"),
                                             cluster.homes))
            want = said["moved"] + 2 * raft
            check(want <= ucx <= 1.2 * want + 1e6,
                  f"Dask and raft moved {want}, weft under UCX {ucx}")
            return (f"NCCL {reduced / 1e6:.1f} MB, UCX {ucx / 1e6:.0f} MB, "
                    f"raft-dask: {missing or 'as far as its handle'}")


if nccl.GPU:
    def needs(module):
        why = cannot_import(module, None)
        if why:
            raise Skip(f"needs {module}: {why}")

    def local_frame(*args):
        with nccl.environment() as env:
            output, rows = run([sys.executable, f"{EXAMPLES}/nccl_frame.py",
                                "--columns", str(FRAME_COLUMNS), *args],
                               env, seconds=110)
        said = results(output)[-1]
        reduced = nccl_went_by_weft(rows, 1, FRAME_COLUMNS)
        return f"{said['kind']}, NCCL {reduced / 1e6:.1f} MB"

    @test(120)
    def frame_of_pandas_on_gpus():
        needs("dask.dataframe")
        return local_frame()

    @test(120)
    def frame_of_cudf_with_a_local_cuda_cluster():
        needs("cudf")
        return local_frame("--cudf")

    @test(120)
    def script_with_a_local_cuda_cluster():
        return script("--cuda")


if __name__ == "__main__":
    main()
