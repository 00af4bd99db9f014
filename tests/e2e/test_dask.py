# SPDX-License-Identifier: BSD-3-Clause
"""Dask clusters over weft_tcp, each process on a host of its own."""
import os
import subprocess
import sys

from lib.cluster import Cluster
from lib.counters import payload_received, to_others, wire_sent
from lib.netns import Network
from lib.program import last_json
from lib.tap import check, main, test

HERE = os.path.dirname(os.path.abspath(__file__))
TRANSPOSE = os.path.abspath(f"{HERE}/../../examples/demo.py")
SHUFFLE = f"{HERE}/programs/shuffle.py"

# Of the bytes that Dask counts, what weft may carry beside them: Dask's own
# control messages, headers of frames, heartbeats.
MARGIN = 1.2


def within(got, low, high, what):
    check(low <= got <= high, f"{what}: {got} is not in {low} to {high}")


def workers_only(rows):
    return [row for row in rows if row["process"].startswith("worker")]


@test(150)
def transpose_shuffle_and_a_late_worker():
    with Network(4) as net, Cluster("weft", hosts=net.hosts) as cluster:
        cluster.worker()
        cluster.worker()
        cluster.run(TRANSPOSE, 4000, 1000, 1, 2, name="one")
        moved = last_json(cluster.run(SHUFFLE, 1000000, 10, 2,
                                      name="two"))["moved"]
        early = {host.name: host.bytes() for host in net.hosts}
        # The third joins while the first two compute.
        running = cluster.client(TRANSPOSE, 4000, 1000, 4, 2, name="three")
        cluster.wait_for(
            lambda: net.hosts[1].bytes()[0] - early[net.hosts[1].name][0]
            > 30e6, 60, "traffic of the third program", running)
        cluster.worker()
        check(running.wait(90) == 0, f"failed:\n{running.output()}")
        # The workers' logs begin with their lives, so this holds all.
        moved += last_json(cluster.run(TRANSPOSE, 4000, 1000, 1, 3,
                                       name="four"))["total"]
        wire = [host.bytes() for host in net.hosts]
        cluster.stop()
        rows = cluster.counters()
        check(rows, "no process wrote counters: weft carried nothing")
        # within a host by weft_shm; the cables tell who goes between hosts
        check({row["weft"] for row in rows} <= {"tcp", "shm"},
              "some other device")
        workers = workers_only(rows)
        names = {row["process"] for row in workers}
        check(names == {"worker1", "worker2", "worker3"},
              f"counters of {names}")
        within(payload_received(workers), moved, MARGIN * moved,
               "bytes that weft brought to workers, against Dask's")
        within(wire_sent(workers), moved, MARGIN * moved,
               "bytes that weft took from workers, against Dask's")
        late = payload_received([row for row in workers
                                 if row["process"] == "worker3"])
        check(late > 5e6, f"the late worker got {late} bytes")
        # The kernel's count of the cables, frames and acknowledgements
        # included, against what weft says that it put on them.
        cable = sum(sent for sent, _ in wire)
        told = wire_sent(to_others(rows, cluster.homes))
        within(cable, 0.99 * told, 1.1 * told + 2e6,
               "bytes that left by the cables, against weft's")
        return (f"Dask {moved / 1e6:.0f} MB, "
                f"weft {payload_received(workers) / 1e6:.0f} MB, "
                f"weft's wire {told / 1e6:.0f} MB, "
                f"cables {cable / 1e6:.0f} MB")


@test(60)
def affinity_of_a_worker_is_kept():
    with Cluster("weft") as cluster:
        bound = cluster.worker(prefix=["taskset", "-c", "0"])
        cluster.worker()
        program = cluster.client(TRANSPOSE, 2000, 1000, 2)
        check(program.wait(50) == 0, f"failed:\n{program.output()}")
        cpus = set()
        for task in os.listdir(f"/proc/{bound.pid}/task"):
            with open(f"/proc/{bound.pid}/task/{task}/status") as status:
                cpus |= {line.split()[1] for line in status
                         if line.startswith("Cpus_allowed_list")}
        check(cpus == {"0"}, f"threads may run on {cpus}")
        cluster.stop()
        check(payload_received(cluster.counters("worker1")) > 8e6,
              "weft carried nothing to the bound worker")


@test(60)
def a_missing_module_is_told():
    """UCX_TLS=weft_tcp alone, weft not loaded: no silent way around it."""
    env = dict(os.environ, UCX_TLS="weft_tcp")
    env.pop("LD_PRELOAD", None)
    done = subprocess.run(
        [sys.executable, "-c", "import ucxx; ucxx.init(); "
         "ucxx.create_listener(lambda ep: None); print('listening')"],
        env=env, capture_output=True, text=True, timeout=50)
    check(done.returncode != 0, "a program ran without a transport")
    check("listening" not in done.stdout, "it listened")
    check("weft_tcp" in done.stderr + done.stdout
          or "No such device" in done.stderr,
          f"the message names nothing:\n{done.stderr}")


if __name__ == "__main__":
    main()
