# SPDX-License-Identifier: BSD-3-Clause
"""Settings and launch lines from the documents that users follow."""
import json
import os
import re
import sys

from lib.cluster import Cluster, weft_command
from lib.counters import payload_received
from lib.netns import Network
from lib.program import run
from lib.tap import check, main, test

HERE = os.path.dirname(os.path.abspath(__file__))
TRANSPOSE = os.path.abspath(f"{HERE}/../../examples/demo.py")


def compute(cluster, workers=2, name="client"):
    output = cluster.run(TRANSPOSE, 2000, 500, 2, workers, name=name)
    return json.loads([line for line in output.splitlines()
                       if line.startswith("{")][-1])["total"]


def carried(cluster, moved, devices=None):
    """weft brought the workers what Dask moved, over @devices alone."""
    cluster.stop()
    rows = cluster.counters()
    got = payload_received([row for row in rows
                            if row["process"].startswith("worker")])
    check(moved <= got <= 1.2 * moved, f"Dask moved {moved}, weft {got}")
    used = {row["netdev"] for row in rows}
    check(devices is None or used == devices, f"over {used}")
    return f"Dask {moved / 1e6:.0f} MB, weft {got / 1e6:.0f} MB"


def recipe(arm, env, protocol="ucxx", devices=None, interface=None):
    with Network(3) as net, \
            Cluster(arm, protocol, net.hosts, env, interface) as cluster:
        cluster.worker()
        cluster.worker()
        return carried(cluster, compute(cluster), devices)


@test(60)
def sockcm_recipe_under_weft_run():
    """ucx-py's "TCP using eno0", which breaks UCX as it is today."""
    return recipe("weft", {"UCX_TLS": "tcp,sockcm",
                           "UCX_SOCKADDR_TLS_PRIORITY": "sockcm",
                           "UCXPY_IFNAME": "eth0"}, interface="eth0")


@test(60)
def dask_ucx_flags_of_2020():
    """dask-cuda's DASK_UCX__*, which reaches nobody today."""
    return recipe("preload", {"DASK_UCX__TCP": "True",
                              "DASK_UCX__NET_DEVICES": "eth0"},
                  protocol="ucx", devices={"eth0"})


@test(60)
def dask_comm_flags_of_2021():
    return recipe("preload", {"DASK_DISTRIBUTED__COMM__UCX__TCP": "True"},
                  protocol="ucx")


@test(60)
def dask_ucxx_flags_of_today():
    return recipe("preload", {"DASK_DISTRIBUTED_UCXX__TCP": "True"})


@test(240)
def demo_of_the_readme():
    """What `./quickstart demo` runs, as small as it gets."""
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
    check("who carried the bytes: weft_tcp over " in output, output)
    carried = float(re.search(r"counters: ([\d.]+) MB", output)[1])
    moved = float(re.search(r"workers moved ([\d.]+) MB", output)[1])
    check(0 < moved <= carried <= 2 * moved + 1,
          f"Dask moved {moved} MB, weft {carried}")
    return f"Dask {moved} MB, weft {carried} MB"


if __name__ == "__main__":
    main()
