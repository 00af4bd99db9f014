# SPDX-License-Identifier: BSD-3-Clause
"""
rapidsmpf, cudf-polars, dask-cudf and raft-dask on GPUs, a pod for each rank or
worker: every row checked, and what weft_nvl carried is what had to move. Beside it
UCX's tcp in the same pods, and cuda_ipc where it works, in one container.
"""
import contextlib
import glob
import importlib.util
import json
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from lib import counters, nccl
from lib.cluster import Cluster, Process, weft_command
from lib.program import clean_env, last_json
from lib.tap import Skip, check, main, test

HERE = os.path.dirname(os.path.abspath(__file__))
RAFT = f"{HERE}/../e2e/programs/raft.py"
GROUPS = 1000003  # as in rapids_ranks.py
# UCX's own ways: as between pods, and as in one container
STOCK = {"tcp": "tcp,cuda_copy", "ipc": "cuda_ipc,cuda_copy,posix,tcp"}


def needs(*modules):
    if not os.path.exists("/dev/nvidiactl"):
        raise Skip("no GPU")
    if os.geteuid() != 0:
        raise Skip("namespaces need root")
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise Skip(f"no Python module {module}")


class Pod:
    """Namespaces of its own on the network of the host."""
    address = "127.0.0.1"

    def __init__(self, name):
        self.name = name

    def command(self, argv):
        return [os.environ["RAPIDS_POD"], "-n", self.name, *argv]


PODS = [Pod("pod0"), Pod("pod1")]
GPUS = "/dev/nvidia[0-9]"


def gpu(index):
    """A GPU for each pod, or one for both; the nodes of all are there."""
    return {"CUDA_VISIBLE_DEVICES":
            str(index % max(1, len(glob.glob(GPUS))))}


def by_nvlink(rows):
    """What weft_nvl moved, of the rows of both sides."""
    return counters.total([row for row in rows if row["weft"] == "nvlink"],
                          "tx_put_bytes", "get_bytes")


def by_tcp(rows):
    return counters.payload_received(row for row in rows
                                     if row["weft"] != "nvlink")


def ranks(folder, arm, *args, seconds=100, ok=(0, )):
    """What two ranks say: their lines of JSON, all output, weft's counters."""
    run = tempfile.mkdtemp(dir=folder)
    argv = [sys.executable, f"{HERE}/rapids_ranks.py", *map(str, args)]
    env = {"WEFT_RUN_DIR": run, "RRUN_NRANKS": "2", "RRUN_COORD_DIR":
           f"{run}/rrun", "PYTHONUNBUFFERED": "1"}
    if arm == "weft":
        argv = [weft_command(), "run", *argv]
        env["WEFT_STATS"] = f"{run}/rank.%p.stats"
    else:
        env["UCX_TLS"] = STOCK[arm]
    started = [Process(f"rank {rank}", argv,
                       clean_env({**env, **gpu(rank), "RRUN_RANK": str(rank)}),
                       f"{run}/{rank}.log", pod if arm != "ipc" else None)
               for rank, pod in enumerate(PODS)]
    with ThreadPoolExecutor() as pool:
        status = list(pool.map(lambda process: process.wait(seconds), started))
    for process in started:
        process.stop()
    said = [process.output() for process in started]
    check(all(code in ok for code in status),
          f"{arm}: {status}:\n" + "\n---\n".join(text[-6000:] for text in said))
    lines = [json.loads(line) for text in said for line in text.splitlines()
             if line.startswith('{"rank"')]
    return lines, said, counters.read_dir(run)


def complete(folder, name, total, replicated=False):
    """
    The ids of both ranks are all there are: each on one of them, or, if they may
    be @replicated, all on each.
    """
    import numpy as np
    here = [np.unpackbits(np.fromfile(file, "u1"))[:total]
            for file in glob.glob(f"{folder}/{name}.?")]
    check(len(here) == 2 and ((here[0] + here[1] == 1).all() or replicated and
                              here[0].all() and here[1].all()),
          f"{name}: of {total} rows ranks have {[int(x.sum()) for x in here]}")


def shuffle(arm):
    needs("rapidsmpf", "cudf_streaming", "cupy")
    with tempfile.TemporaryDirectory(prefix="weft-gpu.") as folder:
        lines, said, rows = ranks(folder, arm, "shuffle", folder)
        check(len(lines) == 2, said)
        for turn in range(lines[0]["rounds"]):
            complete(folder, f"shuffle{turn}", 2 * lines[0]["each"] // 16)
    crossed = sum(line["crossed"] for line in lines)
    took = max(line["best_s"] for line in lines)
    rate = crossed / lines[0]["rounds"] / took / 1e9
    note = (f"{crossed / 1e6:.0f} MB crossed, best of {lines[0]['rounds']} "
            f"rounds {took:.4f} s, {rate:.1f} GB/s both ways together")
    if arm == "weft":
        moved, other = by_nvlink(rows), by_tcp(rows)
        check(crossed <= moved <= 1.02 * crossed + 1e6 and other < 4e6,
              f"{crossed} bytes crossed, weft_nvl moved {moved}, the rest {other}")
        note += f"; weft_nvl moved {moved / 1e6:.0f} MB, the rest {other / 1e6:.1f}"
    return note


@test(110)
def shuffle_of_cudf_tables_by_weft():
    return shuffle("weft")


@test(110)
def shuffle_of_cudf_tables_by_tcp():
    return shuffle("tcp")


@test(110)
def shuffle_of_cudf_tables_by_cuda_ipc_in_one_container():
    return shuffle("ipc")


def own_tests(arm):
    needs("rapidsmpf", "pytest")
    source = os.environ.get("RAPIDSMPF_SOURCE")
    if not source:
        raise Skip("RAPIDSMPF_SOURCE names no sources of rapidsmpf")
    with tempfile.TemporaryDirectory(prefix="weft-gpu.") as folder:
        _, said, rows = ranks(folder, arm, "pytest",
                              f"{source}/python/rapidsmpf/rapidsmpf/tests",
                              seconds=60, ok=(0, 1))
    ends = [re.findall(r"(\d+) (passed|failed|skipped|error)",
                       text.splitlines()[-1]) for text in said]
    check(all(ends), "\n".join(said))
    if any(" failed" in text or " error" in text for text in said):
        print(arm, *(text[-6000:] for text in said), sep="\n")
    return ends, sorted(set(re.findall(r"^(?:FAILED|ERROR) \S*/tests/(\S+)",
                                       "\n".join(said), re.M))), rows


@test(150)
def tests_of_rapidsmpf_on_two_ranks():
    """As many hold as over UCX's tcp, and weft_nvl has carried."""
    ends, failed, rows = own_tests("weft")
    stock = own_tests("tcp")
    check((ends, failed) == stock[:2], f"weft {ends}, tcp {stock[0]}; not with "
          f"both: {sorted(set(failed) ^ set(stock[1]))[:20]}")
    check(by_nvlink(rows) > 0, "weft_nvl carried nothing")
    return (f"each rank: {ends}; {failed or 'none failed'}; "
            f"weft_nvl moved {by_nvlink(rows) / 1e6:.1f} MB")


def joined_by_nvlink(rows, least, most):
    """The join takes @least bytes, and not @most times as many."""
    moved = by_nvlink(rows)
    check(least <= moved <= most * least,
          f"weft_nvl moved {moved} bytes, the join takes {least}")
    return f", weft_nvl moved {moved / 1e6:.0f} MB"


def polars(arm):
    needs("cudf_polars", "rapidsmpf")
    with tempfile.TemporaryDirectory(prefix="weft-gpu.") as folder:
        rows = 1 << 22
        lines, said, carried = ranks(folder, arm, "polars", folder, rows)
        check(len(lines) == 2, said)
        complete(folder, "join", 2 * rows)
        # a sum by group ends on one rank or on all, as cudf-polars likes
        complete(folder, "groups", GROUPS, replicated=True)
    note = f"{2 * rows} rows joined, {GROUPS} groups"
    if arm == "weft":
        # of each row one half of two columns has to go where the other is
        note += joined_by_nvlink(carried, 2 * rows * 16, 4)
    return note


@test(110)
def cudf_polars_on_two_ranks_by_weft():
    return polars("weft")


@test(110)
def cudf_polars_on_two_ranks_by_tcp():
    return polars("tcp")


class Here:
    address = "127.0.0.1"

    def command(self, argv):
        return argv


@contextlib.contextmanager
def workers_in_pods(arm, env=None):
    """Scheduler and client on the host, a worker in each of two pods."""
    env = {**gpu(0), "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "30s",
           **(env or {})}
    if arm != "weft":
        env["UCX_TLS"] = STOCK[arm]
    with tempfile.TemporaryDirectory(prefix="weft-gpu.") as run, \
            Cluster(arm, "ucxx", [Here(), *PODS],
                    {**env, "WEFT_RUN_DIR": run}) as cluster:
        for index in range(len(PODS)):
            cluster.worker({**gpu(index),
                            "DASK_DISTRIBUTED__RMM__POOL_SIZE": "8GB"})
        yield cluster


def on_dask(arm, *args, seconds=120):
    with workers_in_pods(arm) as cluster:
        said = last_json(cluster.run(f"{HERE}/rapids_dask.py", *args,
                                     seconds=seconds))
        for worker in cluster.workers:
            check(worker.alive(), f"{worker.name} ended with "
                  f"{worker.popen.returncode}:\n{worker.output()[-3000:]}")
        cluster.stop()
        return said, cluster.counters("worker*")


def merge(arm):
    needs("dask_cudf", "distributed_ucxx")
    said, rows = on_dask(arm, "merge")
    note = (f"{said['rows']} rows, first {said['first_s']} s, best "
            f"{said['best_s']} s, Dask fetched {said['fetched'] / 1e6:.0f} MB")
    if arm == "weft":
        moved = by_nvlink(rows)
        check(0.99 * said["fetched"] <= moved <= 1.1 * said["fetched"],
              f"Dask fetched {said['fetched']}, weft_nvl moved {moved}")
        note += f", weft_nvl moved {moved / 1e6:.0f} MB"
    return note


@test(150)
def merge_of_dask_cudf_by_weft():
    return merge("weft")


@test(150)
def merge_of_dask_cudf_by_tcp():
    return merge("tcp")


def polars_on_dask(arm):
    needs("cudf_polars", "distributed_ucxx")
    with tempfile.TemporaryDirectory(prefix="weft-gpu.") as folder:
        said, rows = on_dask(arm, "polars", folder)
    note = f"{said['rows']} rows, {said['groups']} groups, {said['first_s']} s"
    if arm == "weft":
        note += joined_by_nvlink(rows, said["rows"] * 8, 16)
    return note


@test(150)
def cudf_polars_on_dask_by_weft():
    return polars_on_dask("weft")


@test(150)
def cudf_polars_on_dask_by_tcp():
    return polars_on_dask("tcp")


@test(150)
def cudf_through_the_comms_of_raft():
    """RAFT's own tests of both ways, and a frame; as if on two hosts."""
    needs("raft_dask", "cudf", "distributed_ucxx")
    if len(glob.glob(GPUS)) < 2:
        raise Skip("two ranks on one GPU take 8 s for each of RAFT's 100 "
                   "trials, under MPS and over UCX's tcp, too")
    with nccl.environment() as env:
        env.update(WEFT_NCCL_INTRODUCE="off", NCCL_SOCKET_IFNAME="lo")
        with workers_in_pods("weft", env) as cluster:
            said = last_json(cluster.run(RAFT))
            cluster.stop()
            rows = cluster.counters("worker*")
    moved = counters.payload_received(row for row in rows
                                      if row["runtime"] == "nccl")
    # each of two ranks needs the other's sums
    least = 2 * said["bytes"]
    check(least <= moved <= 4 * least + 1e6,
          f"weft carried {moved} bytes for NCCL, {least} are due")
    check(by_nvlink(row for row in rows if row["runtime"] == "ucx") > 0,
          "weft_nvl carried nothing for UCX")
    return f"{said}, NCCL by weft {moved / 1e6:.1f} MB"


if __name__ == "__main__":
    main()
