# SPDX-License-Identifier: BSD-3-Clause
"""What others see when a worker dies, vanishes, or is merely busy."""
import os
import time

from lib.cluster import Cluster
from lib.counters import payload_received, wire_sent
from lib.netns import Network
from lib.tap import check, main, test

HERE = os.path.dirname(os.path.abspath(__file__))
MISHAPS = f"{HERE}/programs/mishaps.py"

# A kernel that is silent this long is taken for dead.
PEER_TIMEOUT = 5


def until_traffic(cluster, host, program, more=60e6):
    before = host.bytes()[1]
    cluster.wait_for(lambda: host.bytes()[1] > before + more, 60,
                     f"traffic to {host.name}", program)


def finish(cluster, program, since, seconds):
    """The program ends well, and soon: no process waits for the lost worker."""
    status = program.wait(seconds)
    check(status is not None,
          f"hangs since {time.monotonic() - since:.0f} s:\n"
          f"{program.output()}")
    check(status == 0, f"failed:\n{program.output()}")
    for process in (cluster.scheduler, *cluster.workers[:2]):
        check(process.alive(), f"{process.name} died:\n{process.output()}")
    return time.monotonic() - since


def survivors_carried(cluster):
    cluster.stop()
    for name in ("worker1", "worker2"):
        rows = cluster.counters(name)
        check(payload_received(rows) > 30e6 and wire_sent(rows) > 30e6,
              f"weft carried nothing for {name}: {rows}")


@test(200)
def a_worker_killed_in_mid_transfer():
    env = {"WEFT_PEER_TIMEOUT": f"{PEER_TIMEOUT}s"}
    with Network(4) as net, \
            Cluster("weft", hosts=net.hosts, env=env) as cluster:
        for _ in range(3):
            victim = cluster.worker()
        program = cluster.client(MISHAPS, "moves", 12)
        until_traffic(cluster, net.hosts[3], program)
        check("turn 11" not in program.output(), "killed too late")
        victim.kill()
        took = finish(cluster, program, time.monotonic(), 90)
        check("Remove worker" in cluster.scheduler.output(),
              "the scheduler never noticed")
        survivors_carried(cluster)
        return f"done {took:.1f} s after the kill"


@test(200)
def a_worker_vanishes_without_a_word():
    """No FIN, no RST: only the silence of its kernel tells."""
    env = {"WEFT_PEER_TIMEOUT": f"{PEER_TIMEOUT}s"}
    with Network(4) as net, \
            Cluster("weft", hosts=net.hosts, env=env) as cluster:
        for _ in range(3):
            cluster.worker()
        program = cluster.client(MISHAPS, "moves", 12)
        until_traffic(cluster, net.hosts[3], program)
        check("turn 11" not in program.output(), "pulled too late")
        net.hosts[3].pull_cable()
        pulled = time.monotonic()
        # Dask itself would wait for its worker-ttl, five minutes.
        cluster.wait_for(
            lambda: "Remove worker" in cluster.scheduler.output(),
            10 * PEER_TIMEOUT, "error at the scheduler", cluster.scheduler)
        noticed = time.monotonic() - pulled
        took = finish(cluster, program, pulled, 100)
        survivors_carried(cluster)
        return f"noticed after {noticed:.1f} s, done after {took:.1f} s"


def hold(threads):
    seconds = 60 if os.environ.get("E2E_LONG") == "1" else 15
    env = {"WEFT_PEER_TIMEOUT": "3s", "WEFT_TCP_THREADS": threads}
    with Network(3) as net, \
            Cluster("weft", hosts=net.hosts, env=env) as cluster:
        cluster.worker()
        cluster.worker()
        flag = os.path.join(cluster.folder, "held")
        program = cluster.client(MISHAPS, "hold", seconds, flag)
        cluster.wait_for(lambda: os.path.exists(flag), 60, "held GIL",
                         program)
        status = program.wait(seconds + 60)
        check(status == 0, f"status {status}:\n{program.output()}")
        for process in (cluster.scheduler, *cluster.workers):
            output = process.output()
            check("Remove worker" not in output, f"failed:\n{output}")
            check("CommClosedError" not in output, f"failed:\n{output}")
        cluster.stop()
        got = payload_received(cluster.counters("worker2"))
        check(got >= 256 << 20, f"weft carried {got} bytes to worker2")
        return f"held for {seconds} s"


@test(150)
def busy_is_not_dead():
    """A worker holds the GIL far longer than a silent kernel may."""
    return hold("auto")


@test(150, only_long=True)
def busy_with_a_closed_window_is_not_dead():
    """No process reads meanwhile: the peer's window stays closed."""
    return hold("0")


if __name__ == "__main__":
    main()
