# SPDX-License-Identifier: BSD-3-Clause
"""
rapidsmpf's UCXX communicator, as far as its wheels go without a GPU: ranks that
rrun, Dask or a pod starts send each other host memory. Its buffers, and so its
shuffler and collectives, begin with a CUDA stream.
"""
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

from lib import counters
from lib.cluster import Cluster, Process, weft_command
from lib.netns import Network
from lib.program import clean_env
from lib.tap import Skip, check, main, test

HERE = os.path.dirname(os.path.abspath(__file__))
BARRIERS = f"{HERE}/programs/barriers.py"
WHEELS = sysconfig.get_path("platlib")
RRUN = f"{WHEELS}/librapidsmpf/bin/rrun"
SIZES = (0, 1, 1000, 9000, 300000, 10000000)
TIMES = 200  # as in barriers.py


def compiled(folder):
    """alltoall.cpp, against the headers and the libraries of the wheels."""
    compiler = os.environ.get("CXX", "g++")
    if not shutil.which(compiler):
        raise Skip(f"no {compiler}, and clang 14 does not compile "
                   "rapidsmpf's headers")
    include = [f"{WHEELS}/{name}/include" for name in
               ("librapidsmpf", "librmm", "libucxx", "libucx", "nvidia/cu13")]
    include.append(f"{WHEELS}/librmm/include/rapids")
    libs = [f"{WHEELS}/{name}" for name in
            ("librapidsmpf/lib64", "libucxx/lib64", "librmm/lib64",
             "rapids_logger/lib64", "libucx/lib")]
    done = subprocess.run(
        [compiler, "-std=c++20", "-O1", "-Wall", "-Werror",
         "-DRAPIDSMPF_HAVE_UCXX",
         *(word for path in include for word in ("-isystem", path)),
         "-o", f"{folder}/alltoall", f"{HERE}/programs/alltoall.cpp",
         *(f"-L{path}" for path in libs),
         *(f"-Wl,-rpath,{path}" for path in libs), "-Wl,--no-as-needed",
         "-lrapidsmpf", "-lucxx", "-lrmm", "-lrapids_logger",
         "-lucp", "-luct", "-lucs", "-lucm"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    check(done.returncode == 0, done.stdout)
    return [f"{folder}/alltoall", *map(str, SIZES)]


class Ranks:
    """What was started on each of @hosts, and weft's counters of it."""

    def __init__(self, folder, hosts, argvs, env, seconds=60):
        self.folder = tempfile.mkdtemp(dir=folder)
        env = dict(clean_env(env), WEFT_RUN_DIR=self.folder,
                   WEFT_STATS=f"{self.folder}/rank.%p.stats")
        each = ({}, ) if len(hosts) == 1 else [
            {"RRUN_RANK": str(rank), "RRUN_NRANKS": str(len(hosts)),
             "RRUN_COORD_DIR": f"{self.folder}/rrun"}
            for rank in range(len(hosts))]
        started = [Process(f"host {i}", argv, {**env, **more},
                           f"{self.folder}/{i}.log", host)
                   for i, (argv, host, more) in
                   enumerate(zip(argvs, hosts, each))]
        status = [process.wait(seconds) for process in started]
        for process in started:
            process.stop()
        self.said = "\n".join(process.output() for process in started)
        check(not any(status), f"{argvs[0]}: {status}:\n{self.said}")
        self.rows = counters.read_dir(self.folder)

    def carried_by(self, device, netdev, ranks):
        """Each rank got all, and over @netdev, a part of it as a block."""
        each = ranks * sum(SIZES)
        got = re.findall(r"^rank (\d+) of (\d+) got (\d+) bytes$", self.said,
                         re.M)
        check(sorted(got) == [(str(rank), str(ranks), str(each))
                              for rank in range(ranks)], self.said)
        used = {(row["weft"], row["netdev"]) for row in self.rows}
        check(used == {(device, netdev)}, f"over {used}, not {netdev}")
        moved = counters.payload_received(self.rows)
        most = ranks * each + ranks * ranks * 65536
        check(ranks * each <= moved <= most,
              f"{ranks} ranks got {each} bytes each, weft carried {moved}")
        check(counters.total(self.rows, "key_errors") == 0, "key errors")
        return moved


@test(150)
def host_memory_between_ranks_of_rrun_and_between_pods():
    weft = [weft_command(), "run"]
    rrun = [RRUN, "-n", "3"]
    mode = "RAPIDSMPF_UCXX_PROGRESS_MODE"
    with tempfile.TemporaryDirectory(prefix="weft-e2e.") as folder:
        program = compiled(folder)
        with Network(2) as net:
            pods = net.hosts
            Ranks(folder, pods[:1], [[*weft, *rrun, *program]],
                  {}).carried_by("shm", "shm", 3)
            Ranks(folder, pods[:1], [[*rrun, *weft, *program]],
                  {mode: "polling"}).carried_by("shm", "shm", 3)
            Ranks(folder, pods, [[*weft, *program]] * 2,
                  {mode: "thread-polling", "UCX_TLS": "weft_tcp"}
                  ).carried_by("tcp", "eth0", 2)
            moved = Ranks(folder, pods, [[*weft, *program]] * 2,
                          {}).carried_by("shm", "shm", 2)
        # rrun names the adapters near a GPU; weft, the interface of each
        with Network(1, "ib0", verbs=True) as net:
            Ranks(folder, net.hosts,
                  [[*rrun, "-x", "UCX_NET_DEVICES=mlx5_0", *weft, *program]],
                  {"UCX_TLS": "weft_tcp"}).carried_by("tcp", "ib0", 3)
    return f"two ranks: {moved / 1e6:.0f} MB"


@test(60)
def barriers_between_ranks_that_rrun_starts():
    with tempfile.TemporaryDirectory(prefix="weft-e2e.") as folder, \
            Network(1) as net:
        ranks = Ranks(folder, net.hosts, [[
            weft_command(), "run", RRUN, "-n", "2", sys.executable, BARRIERS,
            folder]], {})
        check(sorted(re.findall(r"^rank (\d) of 2$", ranks.said, re.M)) ==
              ["0", "1"], ranks.said)
        sent = counters.total(ranks.rows, "tx_messages")
        check(3 * TIMES <= sent <= 4 * TIMES,
              f"{TIMES} barriers of two ranks in {sent} messages")
        return f"{TIMES} in {sent} messages"


@test(120)
def barriers_between_workers_of_dask():
    """Beside Dask's own UCX in the same processes, on two hosts."""
    with Network(3) as net, Cluster("weft", "ucxx", net.hosts) as cluster:
        cluster.worker()
        cluster.worker()
        files = tempfile.mkdtemp(dir=cluster.folder)
        process = cluster.spawn(
            "client", [sys.executable, BARRIERS, files,
                       cluster.scheduler_file], host=net.hosts[0])
        status = process.wait(90)
        check(status == 0 and re.search("^ranks 2$", process.output(), re.M),
              f"status {status}:\n{process.output()}")
        cluster.stop()
        rows = cluster.counters("worker?")
        # by weft_shm each is connected to itself, too, and sends nothing
        check(counters.wire_sent(row for row in rows
                                 if row["weft"] != "tcp") == 0, f"{rows}")
        own = {row["id"] for row in rows if row["weft"] == "tcp"}
        check(len(own) == 4, f"interfaces of the workers: {own}")
        # of the first worker to the second, between interfaces that are not
        # Dask's, which go by way of the scheduler or by few messages
        most = max(row["tx_messages"] for row in rows if row["peer"] in own)
        check(2 * TIMES <= most <= 3 * TIMES,
              f"{TIMES} barriers in {most} messages")
        return f"{TIMES} in {most} messages"


if __name__ == "__main__":
    main()
