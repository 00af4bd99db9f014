# SPDX-License-Identifier: BSD-3-Clause
"""Settings and launch lines from the documents that users follow."""
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor

from lib.cluster import Cluster, weft_command
from lib.counters import payload_received
from lib.netns import Network
from lib.program import last_json, run
from lib.tap import Skip, check, main, test

HERE = os.path.dirname(os.path.abspath(__file__))
TRANSPOSE = os.path.abspath(f"{HERE}/../../examples/demo.py")


def compute(cluster, workers=2, name="client"):
    output = cluster.run(TRANSPOSE, 2000, 500, 2, workers, name=name)
    return last_json(output)["total"]


def carried(cluster, moved, devices=None, wire="tcp"):
    """weft's @wire brought the workers what Dask moved, over @devices alone."""
    cluster.stop()
    rows = cluster.counters()
    got = payload_received([row for row in rows if row["weft"] == wire and
                            row["process"].startswith("worker")])
    check(moved <= got <= 1.2 * moved, f"Dask moved {moved}, weft {got}")
    used = {row["netdev"] for row in rows if row["weft"] != "shm"}
    check(devices is None or used == devices, f"over {used}")
    others = payload_received([row for row in rows if row["weft"] != wire and
                               row["process"].startswith("worker")])
    check(others < 1e6, f"{others} bytes went over another wire")
    return f"Dask {moved / 1e6:.0f} MB, weft {got / 1e6:.0f} MB"


def settings(text):
    """As a recipe has them on its command line, or exports them."""
    return dict(word.split("=", 1) for word in text.split())


def block_of_ucx_py(tls, interface):
    """
    A block of settings of ucx-py's README, under weft run.  UCX has no sockcm
    since 1.10; where there is no GPU Dask fails over what names cuda.
    """
    env = settings(f"UCX_TLS={tls} UCX_SOCKADDR_TLS_PRIORITY=sockcm "
                   f"UCXPY_IFNAME={interface}")
    with Network(3, interface) as net, \
            Cluster("weft", "ucxx", net.hosts, env, interface) as cluster:
        cluster.worker()
        cluster.worker()
        return carried(cluster, compute(cluster), {interface})


@test(60)
def tcp_using_eth0_and_cuda_support():
    return block_of_ucx_py("tcp,sockcm,cuda_copy,cuda_ipc", "eth0")


@test(60)
def infiniband_using_ib0_and_cuda_support():
    """Names no transport that carries messages: weft_tcp does, over ib0."""
    return block_of_ucx_py("sockcm,cuda_copy,cuda_ipc", "ib0")


@test(60)
def tcp_using_eno0_and_no_cuda_support():
    return block_of_ucx_py("tcp,sockcm", "eno0")


# dask-cuda's "all transports", but for the pool, which takes a GPU.
FLAGS_OF_2020 = settings(
    "DASK_UCX__CUDA_COPY=True DASK_UCX__TCP=True DASK_UCX__NVLINK=True "
    "DASK_UCX__INFINIBAND=True DASK_UCX__RDMACM=True "
    "DASK_UCX__NET_DEVICES=mlx5_0:1")


@test(90)
def infiniband_of_2020_and_a_client_told_by_os_environ():
    """
    dask-cuda's flags, which have no effect today, --interface ib0 with the
    port beside it, and a client that sets them before it imports Dask.
    """
    with Network(3, "ib0", verbs=True) as net, \
            Cluster("preload", "ucx", net.hosts, FLAGS_OF_2020,
                    "ib0") as cluster:
        cluster.worker()
        cluster.worker()
        output = cluster.run(
            f"{HERE}/programs/environ.py",
            *(f"{name}={value}" for name, value in FLAGS_OF_2020.items()),
            env=dict.fromkeys(FLAGS_OF_2020))
        said = last_json(output)
        check(said["address"].startswith(f"ucx://{net.hosts[0].address}:"),
              f"the scheduler is at {said['address']}")
        note = carried(cluster, said["total"], {"mlx5_0:1", "ib0"}, "ib")
        mine = payload_received(cluster.counters("client"))
        check(said["client"] <= mine <= 1.2 * said["client"],
              f"{mine} bytes to the client")
        return note


@test(90)
def local_cuda_cluster_with_all_transports():
    """
    A worker for each of two GPUs, which are there in name only.  On one host
    weft_shm is chosen over weft_ib.
    """
    with Network(1, "ib0", verbs=True) as net:
        output, rows = run(
            [sys.executable, f"{HERE}/programs/local_cuda.py"],
            {"LD_PRELOAD": os.environ["E2E_PRELOAD"],
             "PYTHONPATH": f"{HERE}/double/gpus:{os.environ['PYTHONPATH']}"},
            seconds=80, weft=False, host=net.hosts[0])
        said = last_json(output)
        check(said["visible"] == ["0,1", "1,0"], f"GPUs: {said['visible']}")
        check(said["at"].startswith(f"ucx://{net.hosts[0].address}:"),
              said["at"])
        got = payload_received([row for row in rows if row["weft"] == "shm"])
        check(said["moved"] <= got <= 1.2 * said["moved"] + 1e6,
              f"Dask moved {said['moved']}, weft_shm {got}")
        return f"Dask {said['moved'] / 1e6:.0f} MB, weft_shm {got / 1e6:.0f} MB"


# What is set, and what of it UCX has in the end.  A host without a GPU: nothing
# of CUDA's is left.
READ_BACK = (
    ("preload", "ucx", "DASK_RMM__POOL_SIZE=1GB DASK_UCX__CUDA_COPY=True "
     "DASK_UCX__TCP=True DASK_UCX__NVLINK=True DASK_UCX__RDMACM=True "
     "DASK_UCX__NET_DEVICES=lo",
     "TLS=weft_shm,weft_tcp NET_DEVICES=lo "
     "SOCKADDR_TLS_PRIORITY=rdmacm,tcp "
     "pool=1000000000"),
    ("preload", "ucx", "DASK_UCX__INFINIBAND=True", "TLS=weft_shm,weft_tcp"),
    ("preload", "ucx", "DASK_DISTRIBUTED__COMM__UCX__TCP=True "
     "DASK_DISTRIBUTED__COMM__UCX__RDMACM=True "
     "DASK_DISTRIBUTED__COMM__UCX__ENVIRONMENT__RNDV_THRESH=64k "
     "DASK_DISTRIBUTED__RMM__POOL_SIZE=2GB",
     "TLS=weft_shm,weft_tcp SOCKADDR_TLS_PRIORITY=rdmacm,tcp "
     "RNDV_THRESH=intra:64K,inter:64K "
     "pool=2000000000"),
    ("weft", "ucx", "DASK_DISTRIBUTED__COMM__UCX__NVLINK=True "
     "DASK_DISTRIBUTED__COMM__UCX__CUDA_COPY=True", "TLS=weft_shm,weft_tcp"),
    ("preload", "ucxx", "DASK_DISTRIBUTED_UCXX__TCP=True "
     "DASK_DISTRIBUTED_UCXX__ENVIRONMENT__NET_DEVICES=lo",
     "TLS=weft_shm,weft_tcp NET_DEVICES=lo SOCKADDR_TLS_PRIORITY=tcp"),
    ("preload", "ucxx", "DASK_DISTRIBUTED_UCXX__ENVIRONMENT__TLS=weft_tcp",
     "TLS=weft_tcp"),
    ("preload", "ucxx", "UCX_TLS=weft_tcp UCX_NET_DEVICES=lo "
     "UCX_RNDV_THRESH=64k DASK_DISTRIBUTED_UCXX__NVLINK=False",
     "TLS=weft_tcp NET_DEVICES=lo RNDV_THRESH=intra:64K,inter:64K"),
    ("weft", "ucxx", "UCXPY_IFNAME=lo UCXPY_PROGRESS_MODE=thread",
     "TLS=weft_shm,weft_tcp address=127.0.0.1 mode=thread"),
    # what is set in UCX's own words is UCX's, and weft is not in it
    ("preload", "ucxx", "UCX_TLS=tcp DASK_UCX__TCP=True "
     "DASK_DISTRIBUTED_UCXX__TCP=True", "TLS=tcp"),
)


def read_back(case):
    arm, protocol, given, wanted = case
    env = settings(given)
    if arm == "preload":
        env["LD_PRELOAD"] = os.environ["E2E_PRELOAD"]
    output, rows = run([sys.executable, f"{HERE}/programs/settings.py",
                        protocol], env, seconds=80, weft=arm == "weft")
    said = last_json(output)
    for name, value in settings(wanted).items():
        check(said[name] == value, f"[{given}]: {name} is {said[name]}")
    got, want = payload_received(rows), said["moved"]
    if "weft" not in said["TLS"]:
        want = 0
    check(want <= got <= 1.2 * want + 1e6 * bool(want),
          f"[{given}]: Dask moved {said['moved']}, weft {got}")


@test(150)
def settings_of_every_era_read_back():
    with ThreadPoolExecutor(2) as two:
        for _ in two.map(read_back, READ_BACK):
            pass
    return f"{len(READ_BACK)} sets of them"


@test(240)
def demo_of_the_readme():
    """What `./quickstart demo` runs, as small as it gets."""
    if os.environ.get("CI"):
        raise Skip("the bare machine runs it")
    build = os.path.dirname(os.path.dirname(weft_command()))
    output, _ = run(["bash", f"{os.path.dirname(TRANSPOSE)}/demo.sh",
                     "800", "1", "1"],
                    {"WEFT_BUILD": build, "WEFT_VENV": sys.prefix,
                     # none of the caller's settings may matter
                     "UCX_TLS": "sm", "DASK_UCX__TCP": "True"},
                    seconds=220, weft=False)
    for arm in "Dask's tcp://", "ucxx://, UCX's tcp", "ucxx://, weft run":
        check(re.search(f"^{re.escape(arm)} .* 1 runs, results right$",
                        output, re.M), f"no result of {arm}:\n{output}")
    check("who carried the bytes: weft_shm" in output, output)
    carried = float(re.search(r"counters: ([\d.]+) MB", output)[1])
    moved = float(re.search(r"workers moved ([\d.]+) MB", output)[1])
    check(0 < moved <= carried <= 2 * moved + 1,
          f"Dask moved {moved} MB, weft {carried}")
    return f"Dask {moved} MB, weft {carried} MB"


if __name__ == "__main__":
    main()
