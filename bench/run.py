# SPDX-License-Identifier: BSD-3-Clause
"""
The benchmark: weft beside UCX's own transports, Open MPI's and Dask's tcp://, arms
in turn, ratios of figures of the same run. Rows are printed as report.py says.

usage: run.py --build FOLDER --ucx FOLDER --out FILE [--rounds N]
              [--only PART,...: perftest,busy,shaped,dask,idle;
               by name alone cost,clusters,gpu,links,many,mpi,sizes,wire]
"""
import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.abspath(f"{HERE}/../tests/e2e"))

import busy  # noqa: E402
import many  # noqa: E402
import mpi  # noqa: E402
import perftest  # noqa: E402
import shaped  # noqa: E402
import wire  # noqa: E402
from report import Report  # noqa: E402


def in_turn(arms, rounds, measure):
    """{arm: what each round measured}; a round of all arms after the other."""
    got = {arm: [] for arm in arms}
    for _ in range(rounds):
        for arm, values in got.items():
            values.append(measure(arm))
    return got


def column(got, index):
    return {arm: [values[index] for values in rows]
            for arm, rows in got.items()}


def run_place(options, report, part, where, tests):
    start, devices, others, weft_arm = perftest.PLACES[where]
    for test, size in tests:
        report.row(part, where, test, size, perftest.unit(test),
                   in_turn((*others, weft_arm), options.rounds,
                           lambda arm: perftest.measure(
                               options.ucx, options.preload, arm, test, size,
                               devices, prefixes=(start, start))), weft_arm)


def run_perftest(options, report):
    for where, (start, *_) in perftest.PLACES.items():
        if subprocess.run([*start, "true"]).returncode:
            print(f"{where}: left out, namespaces are not allowed here")
        else:
            run_place(options, report, "perftest", where, perftest.FEW)


def run_sizes(options, report):
    run_place(options, report, "sizes", "lo",
              [(test, size) for test, sizes in perftest.ALL.items()
               for size in sizes])


def run_cost(options, report):
    _, devices, others, weft_arm = perftest.PLACES["lo"]
    for size in (65536, 1 << 20, 64 << 20):
        got = in_turn((*others, weft_arm), options.rounds,
                      lambda arm: perftest.cost(options.ucx, options.preload,
                                                arm, size, devices))
        for index, unit in enumerate(("MB/s", "CPU s per GB")):
            report.row("cost", devices, "tag_bw", size, unit,
                       column(got, index), weft_arm)


def run_gpu(options, report):
    """
    Copied through the host's memory; beside that of the host itself. UCX pins
    fragments for all messages that are under way, slower than it sends them:
    256 MiB of these, and the warm-up has to be enough for that.
    """
    from lib.netns import Network
    _, _, others, weft_arm = perftest.PLACES["lo"]
    with Network(2) as net:
        a, b = net.hosts
        enter = [("ip", "netns", "exec", host.name) for host in (b, a)]
        for size in perftest.GPU:
            for memory in "cuda", "host":
                def rate(arm):
                    tls = perftest.ARMS[arm]["UCX_TLS"] + ",cuda_copy"
                    return perftest.measure(
                        options.ucx, options.preload, arm, "tag_bw", size,
                        "eth0", prefixes=enter, address=b.address,
                        count=3 * perftest.iterations(size),
                        options=("-m", memory, "-O",
                                 str(min(32, (256 << 20) // size))),
                        extra={"UCX_TLS": tls} if memory == "cuda" else {})
                report.row("gpu", "two network namespaces",
                           f"tag_bw, {memory} memory", size, "MB/s",
                           in_turn((*others, weft_arm), options.rounds, rate),
                           weft_arm)


def run_busy(options, report):
    for where, cpus in busy.places().items():
        for count in busy.NEIGHBOURS:
            with busy.neighbours(cpus, count):
                for size in busy.SIZES:
                    report.row("busy", where, f"{count} neighbours", size,
                               "MB/s",
                               in_turn(busy.ARMS, options.rounds,
                                       lambda arm: busy.rate(
                                           options.ucx, options.preload, arm,
                                           size, cpus)), "weft_shm")


def run_shaped(options, report):
    from lib.netns import Network
    cases = {case[0]: case for case in shaped.CASES}
    report.row("shaped", f"{shaped.RATE_MBIT} Mbit/s for each flow", "tag_bw",
               1 << 20, "MB/s",
               in_turn(cases, options.rounds, lambda name: shaped.rate(
                   options.ucx, options.preload, Network, cases[name], 3)))


def run_links(options, report):
    from lib.netns import Network
    for link in shaped.LINKS:
        report.row("links", "a veth with HTB",
                   "{} Mbit/s, MTU {}".format(*link), 1 << 20, "of the link",
                   in_turn(shaped.LINK_ARMS, options.rounds,
                           lambda arm: shaped.link_rate(
                               options.ucx, options.preload, Network, link,
                               arm, 2)), "weft_tcp")


# Workers, the edge of a chunk, are they in network namespaces of their own?
CLUSTERS = {"2 workers": (2, 2000, False), "8 workers": (8, 1000, False),
            "2 workers, a network namespace each": (2, 2000, True),
            "50 workers": (50, 200, False)}
DASK_ARMS = {"tcp://": ("none", "tcp", {}),
             "ucxx, tcp": ("tcp", "ucxx", {"UCX_TLS": "tcp"}),
             "ucxx, weft_tcp": ("weft", "ucxx", {"UCX_TLS": "weft_tcp"}),
             # what `weft run` chooses
             "ucxx, weft_shm": ("weft", "ucxx", {})}


def dask_seconds(name, workers, chunk, network):
    """Of each run of one cluster; what it says it moved weft has carried."""
    from lib import counters
    from lib.cluster import Cluster
    from lib.netns import Network
    arm, protocol, env = DASK_ARMS[name]
    with Network(3) if network else contextlib.nullcontext() as net, \
            Cluster(arm, protocol, net.hosts if net else None,
                    env={"UCX_WARN_UNUSED_ENV_VARS": "n", **env}) as cluster:
        for _ in range(workers):
            cluster.worker()
        size, runs = (8000, 6) if workers < 50 else (10000, 2)
        told = json.loads(cluster.run(
            f"{HERE}/../examples/demo.py", size, chunk, runs, workers,
            seconds=240).splitlines()[-1])
        cluster.stop()
        device = name.partition("weft_")[2]
        carried = counters.payload_received(
            row for row in cluster.counters() if row["weft"] == device)
        if device and carried < sum(told["moved"]):
            sys.exit(f"{name} carried {carried} bytes of {sum(told['moved'])}")
        return told["times"]


def run_dask(options, report, names=("2 workers",)):
    for name in names:
        workers, chunk, network = CLUSTERS[name]
        if workers > 4 * len(os.sched_getaffinity(0)):
            print(f"{name}: left out, more than four a core")
            continue
        # who meets through a folder does not meet without one
        arms = [arm for arm in DASK_ARMS if not network or "shm" not in arm]
        got = in_turn(arms, options.rounds, lambda arm: dask_seconds(
            arm, workers, chunk, network))
        report.row("dask", name, "transpose", None, "s",
                   {arm: sum(times, []) for arm, times in got.items()},
                   arms[-1])


def run_clusters(options, report):
    run_dask(options, report, [name for name in CLUSTERS
                               if name != "2 workers"])


def run_idle(options, report):
    done = subprocess.run([f"{options.build}/bench/idle", "1000"],
                          capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(done.stderr)
    told = json.loads(done.stdout)
    for unit in "sockets", "bytes":
        report.row("idle", f"{told['peers']} connected peers", "a peer", None,
                   f"{unit} each", {"weft_tcp": [told[f"{unit}_per_peer"]]})


def compiled(options, name, *flags):
    """A program here that is of no use without this benchmark."""
    program = f"{os.path.dirname(os.path.abspath(options.out))}/{name}"
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O2",
                    "-D_GNU_SOURCE", "-I", f"{HERE}/..", "-o", program,
                    f"{HERE}/{name}.c", *flags], check=True)
    return program


def run_many(options, report):
    program = compiled(options, "join", *many.flags(options.ucx))

    def told(arm, *how):
        return many.told(program, options.ucx, options.preload, arm, *how)

    for workers in many.WORKERS:
        got = in_turn(many.JOINING, options.rounds,
                      lambda arm: told(arm, workers))
        for key, (what, unit) in many.FIGURES.items():
            report.row("many", f"{workers} workers join", what, None, unit,
                       column(got, key), "weft_tcp")
    for silent in many.SILENT:
        report.row("many", f"{silent} silent workers", "a poll", None, "ns",
                   in_turn(many.POLLED, options.rounds, lambda arm: told(
                       arm, silent, "2", "poll")["poll_ns"]), "weft_shm")


def run_wire(options, report):
    from lib.netns import Network
    program = compiled(options, "wire")
    for case in wire.CASES:
        most = wire.MBIT * wire.share(case[2])
        report.row("wire", f"{wire.MBIT} Mbit/s", wire.told(case), 1 << 20,
                   "of what TCP can carry",
                   in_turn(wire.ARMS, options.rounds, lambda arm: wire.goodput(
                       options.ucx, options.preload, program, Network, arm,
                       case, 4) / most), "weft_tcp")
    for case in wire.LOADED_CASES:
        got = in_turn(wire.LOADED, options.rounds, lambda arm: wire.loaded(
            options.preload, program, Network, arm, case, 8))
        for index, unit in enumerate(("ms, median", "ms, p99", "Mbit/s")):
            report.row("loaded", f"{wire.MBIT} Mbit/s", wire.told(case), None,
                       unit, column(got, index), "ucxx, weft_tcp")


def run_mpi(options, report):
    from lib.netns import Network
    for ranks in mpi.RANKS:
        got = in_turn(mpi.ARMS, options.rounds,
                      lambda arm: mpi.rows(Network, arm, ranks))
        for pairs, pattern, size in got["weft_tcp"][0]:
            key = pairs, pattern, size
            report.row("mpi", f"{pairs} pairs", pattern, size,
                       "us" if pattern == "latency" else "MB/s",
                       column(got, key), "weft_tcp")


PARTS = {"perftest": run_perftest, "busy": run_busy, "shaped": run_shaped,
         "dask": run_dask, "idle": run_idle, "cost": run_cost,
         "clusters": run_clusters, "gpu": run_gpu, "links": run_links,
         "many": run_many, "mpi": run_mpi, "sizes": run_sizes,
         "wire": run_wire}
# These take an hour more.
BY_NAME = ("cost", "clusters", "gpu", "links", "many", "mpi", "sizes",
           "wire")


def main():
    # what spins or listens beside it ends, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--ucx", required=True,
                        help="a UCX with bin/ucx_perftest and lib/")
    parser.add_argument("--out", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(
        part for part in PARTS if part not in BY_NAME))
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    options.preload = f"{options.build}/ucx_tl/.libs/libweft_preload.so"
    os.environ["E2E_WEFT"] = f"{options.build}/tools/weft"
    from lib.tap import Skip
    version = subprocess.run([os.environ["E2E_WEFT"], "--version"],
                             capture_output=True, text=True).stdout.strip()
    report = Report(options.out, weft=version,
                    ucx=os.path.basename(os.path.dirname(options.ucx)))
    print(f"{version}, UCX {report.about['ucx']}, {report.about['machine']}")
    for part in options.only.split(","):
        try:
            PARTS[part](options, report)
        except Skip as reason:
            print(f"{part}: left out, {reason}")


if __name__ == "__main__":
    main()
