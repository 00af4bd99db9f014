# SPDX-License-Identifier: BSD-3-Clause
"""
The benchmark: weft beside UCX's own tcp and Dask's own tcp://, arms in turn,
the best of several rounds, ratios of figures of the same run.

usage: run.py --build FOLDER --ucx FOLDER --out FOLDER [--rounds N]
              [--only PART,...: perftest,busy,shaped,dask,idle;
               by name alone cost,links,many,mpi,wire]
"""
import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.abspath(f"{HERE}/../tests/e2e"))

import busy  # noqa: E402
import many  # noqa: E402
import mpi  # noqa: E402
import perftest  # noqa: E402
import shaped  # noqa: E402
import wire  # noqa: E402

SIZES = (("tag_lat", 8), ("tag_lat", 8192), ("tag_bw", 65536),
         ("tag_bw", 1 << 20), ("tag_bw", 64 << 20))


def say(text):
    print(text, flush=True)


def machine():
    with open("/proc/cpuinfo") as file:
        model = [line.split(":")[1].strip() for line in file
                 if line.startswith("model name")]
    return {"cpu": model[0] if model else platform.machine(),
            "cpus": os.cpu_count(), "kernel": platform.release(),
            "load": os.getloadavg()[0], "python": platform.python_version()}


def run_perftest(options, results):
    for where, (start, devices, others, weft_arm) in perftest.PLACES.items():
        if subprocess.run([*start, "true"]).returncode:
            say(f"{where}: left out, namespaces are not allowed here")
            continue
        for test, size in SIZES:
            got = {arm: [] for arm in (*others, weft_arm)}
            for _ in range(options.rounds):
                for arm in got:
                    got[arm].append(perftest.measure(
                        options.ucx, options.preload, arm, test, size,
                        devices, prefixes=(start, start)))
            best = min if test.endswith("_lat") else max
            unit = "us" if best is min else "MB/s"
            row = {arm: best(values) for arm, values in got.items()}
            results.append({"bench": "perftest", "where": where,
                            "test": test, "size": size, "unit": unit,
                            "best": row, "all": got})
            weft = row[weft_arm]
            ratios = ", ".join(
                f"{(weft / value if best is max else value / weft):.2f} x "
                f"{arm}" for arm, value in row.items() if arm != weft_arm)
            say(f"{where:10} {test:8}{size:10}  " + "  ".join(
                f"{arm} {value:.1f}" for arm, value in row.items())
                + f" {unit}   weft: {ratios}")


def run_cost(options, results):
    for size in (65536, 1 << 20, 64 << 20):
        got = {arm: [] for arm in perftest.PLACES["lo"][2] + ("weft_tcp",)}
        for _ in range(options.rounds):
            for arm, rows in got.items():
                rows.append(perftest.cost(options.ucx, options.preload, arm,
                                          size, "lo"))
        results.append({"bench": "cost", "test": "tag_bw", "size": size,
                        "unit": "MB/s, CPU seconds per GB", "all": got})
        say(f"lo, tag_bw{size:10}  " + "  ".join(
            f"{arm} {max(rate for rate, _ in rows):.0f} MB/s, "
            f"{min(cpu for _, cpu in rows):.3f} CPU s/GB"
            for arm, rows in got.items()))


def run_busy(options, results):
    for where, cpus in busy.places().items():
        for count in busy.NEIGHBOURS:
            with busy.neighbours(cpus, count):
                for size in busy.SIZES:
                    got = {arm: [] for arm in busy.ARMS}
                    for _ in range(options.rounds):
                        for arm, rates in got.items():
                            rates.append(busy.rate(
                                options.ucx, options.preload, arm, size, cpus))
                    say_busy(results, where, count, size, got)


def say_busy(results, where, count, size, got):
    rows = {arm: busy.told(rates) for arm, rates in got.items()}
    results.append({"bench": "busy cores", "where": where,
                    "neighbours": count, "test": "tag_bw", "size": size,
                    "unit": "MB/s", "told": rows, "all": got})
    weft = rows["weft_shm"]
    ratios = ", ".join(
        f"{weft['min'] / max(row['min'], 0.1):.2f} and "
        f"{weft['median'] / max(row['median'], 0.1):.2f} x {arm}"
        for arm, row in rows.items() if arm != "weft_shm")
    say(f"{where:10}{count:2} neighbours tag_bw{size:10}  " + "  ".join(
        f"{arm} {row['min']:.0f} {row['p10']:.0f} {row['median']:.0f}"
        for arm, row in rows.items())
        + f" MB/s (least, p10, median)   weft: {ratios}")


def run_shaped(options, results):
    from lib.netns import Network
    from lib.tap import Skip
    try:
        rates = {name: [] for name, *_ in shaped.CASES}
        for _ in range(options.rounds):
            for case in shaped.CASES:
                rates[case[0]].append(shaped.rate(
                    options.ucx, options.preload, Network, case, 3))
        peer = max(rates[shaped.CASES[0][0]])
        for name, all_rates in rates.items():
            best = max(all_rates)
            results.append({"bench": "shaped", "case": name,
                            "flow_mbit": shaped.RATE_MBIT, "unit": "MB/s",
                            "best": best, "all": all_rates})
            say(f"{shaped.RATE_MBIT} Mbit/s per flow   {name:28}"
                f"{best:8.1f} MB/s, {best / peer:.2f} x UCX's tcp")
    except Skip as reason:
        say(f"shaped flows: left out, {reason}")


def run_links(options, results):
    from lib.netns import Network
    from lib.tap import Skip
    for link in shaped.LINKS:
        got = {arm: [] for arm in shaped.LINK_ARMS}
        try:
            for _ in range(min(options.rounds, 2)):
                for arm, parts in got.items():
                    parts.append(shaped.link_rate(
                        options.ucx, options.preload, Network, link, arm, 2))
        except Skip as reason:
            say(f"links: left out, {reason}")
            return
        best = {arm: max(parts) for arm, parts in got.items()}
        results.append({"bench": "links", "mbit": link[0], "mtu": link[1],
                        "unit": "of the link", "best": best, "all": got})
        say(f"{link[0]} Mbit/s, MTU {link[1]}  " + "  ".join(
            f"{arm} {part:.3f}" for arm, part in best.items())
            + " of the link, headers included")


def run_dask(options, results):
    from lib import counters
    from lib.cluster import Cluster
    arms = (("tcp://", "none", "tcp", {}),
            ("ucxx, tcp", "tcp", "ucxx", {}),
            ("ucxx, weft_tcp", "weft", "ucxx", {"UCX_TLS": "weft_tcp"}),
            # what `weft run` chooses
            ("ucxx, weft_shm", "weft", "ucxx", {}))
    times = {name: [] for name, *_ in arms}
    rates = {name: [] for name, *_ in arms}
    for _ in range(options.rounds):
        for name, arm, protocol, env in arms:
            with Cluster(arm, protocol,
                         env={"UCX_WARN_UNUSED_ENV_VARS": "n", **env}) \
                    as cluster:
                cluster.worker()
                cluster.worker()
                output = cluster.run(f"{HERE}/../examples/demo.py", 8000,
                                     2000, 6, seconds=240)
                told = json.loads(output.splitlines()[-1])
                times[name] += told["times"]
                rates[name] += [size / seconds / 1e6 for size, seconds
                                in zip(told["moved"], told["times"])]
                cluster.stop()
                device = name.partition("weft_")[2]
                carried = counters.payload_received(
                    row for row in cluster.counters()
                    if row["weft"] == device)
                if device and carried < sum(told["moved"]):
                    sys.exit(f"{name} carried {carried} bytes of "
                             f"{sum(told['moved'])}")
    for name in times:
        middle = sorted(times[name])[len(times[name]) // 2]
        results.append({"bench": "dask transpose", "arm": name, "unit": "s",
                        "best": min(times[name]), "median": middle,
                        "best_rate": max(rates[name]), "all": times[name]})
        say(f"Dask transpose  {name:16} best {min(times[name]):.3f} s, "
            f"median {middle:.3f} s, best {max(rates[name]):.0f} MB/s, "
            f"{min(times['tcp://']) / min(times[name]):.2f} x tcp://, "
            f"{min(times['ucxx, tcp']) / min(times[name]):.2f} x ucxx, tcp")


def run_idle(options, results):
    done = subprocess.run([f"{options.build}/bench/idle", "1000"],
                          capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(done.stderr)
    told = json.loads(done.stdout)
    results.append({"bench": "idle peers", **told})
    say(f"{told['peers']} connected peers at rest: "
        f"{told['sockets_per_peer']:.2f} sockets and "
        f"{told['bytes_per_peer']} bytes each")


def compiled(options, name, *flags):
    """A program here that is of no use without this benchmark."""
    program = f"{options.out}/{name}"
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O2",
                    "-D_GNU_SOURCE", "-I", f"{HERE}/..", "-o", program,
                    f"{HERE}/{name}.c", *flags], check=True)
    return program


def run_many(options, results):
    program = compiled(options, "join", *many.flags(options.ucx))
    for workers in many.WORKERS:
        got = {arm: [] for arm in many.JOINING}
        for _ in range(min(options.rounds, 2)):
            for arm, rows in got.items():
                rows.append(many.told(program, options.ucx, options.preload,
                                      arm, workers))
        for arm, rows in got.items():
            best = min(rows, key=lambda row: row["seconds"])
            results.append({"bench": "joining", "arm": arm, "best": best,
                            "all": rows})
            say(f"{workers} workers join  {arm:10}{best['seconds']:8.2f} s, "
                f"{best['cpu_seconds']:.2f} of the scheduler's CPU, "
                f"{best['descriptors']} descriptors, "
                f"{best['kib_each']:.0f} KiB each; {best['gone_seconds']:.2f}"
                " s until it knows that all were killed")
    for silent in many.SILENT:
        got = {arm: [] for arm in many.POLLED}
        for _ in range(options.rounds):
            for arm, rows in got.items():
                rows.append(many.told(program, options.ucx, options.preload,
                                      arm, silent, "2", "poll")["poll_ns"])
        results.append({"bench": "polling", "silent": silent, "unit": "ns",
                        "best": {arm: min(rows) for arm, rows in got.items()},
                        "all": got})
        say(f"a poll with {silent} silent workers  " + "  ".join(
            f"{arm} {min(rows):.1f}" for arm, rows in got.items()) + " ns")


def cable_of(case):
    delay, loss, mtu = case
    return (f"{wire.MBIT} Mbit/s, {delay / 500:g} ms there and back, "
            f"{loss / 10000:g} % lost, MTU {mtu}")


def run_wire(options, results):
    from lib.netns import Network
    from lib.tap import Skip
    program = compiled(options, "wire")
    for case in wire.CASES:
        mtu = case[2]
        got = {arm: [] for arm in wire.ARMS}
        try:
            for _ in range(min(options.rounds, 2)):
                for arm, rates in got.items():
                    rates.append(wire.goodput(
                        options.ucx, options.preload, program, Network, arm,
                        case, 4))
        except Skip as reason:
            say(f"a wire: left out, {reason}")
            return
        most = wire.MBIT * wire.share(mtu)
        results.append({"bench": "wire", "case": cable_of(case),
                        "unit": "Mbit/s", "most": most, "all": got,
                        "best": {arm: max(all_rates)
                                 for arm, all_rates in got.items()}})
        say(f"{cable_of(case)}  " + "  ".join(
            f"{arm} {max(rates):.1f} ({max(rates) / most:.2f})"
            for arm, rates in got.items()) + " Mbit/s (of the wire)")
    for case in wire.LOADED_CASES:
        for arm in wire.LOADED:
            times, mbit = wire.loaded(options.preload, program, Network, arm,
                                      case, 8)
            p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
            results.append({"bench": "loaded wire", "case": cable_of(case),
                            "arm": arm, "unit": "us", "mbit": mbit,
                            "p50": p50, "p99": p99, "all": times})
            say(f"{cable_of(case)}, filled  {arm:16}{p50 / 1000:8.2f} ms there "
                f"and back, p99 {p99 / 1000:.2f}, beside {mbit:.0f} Mbit/s")


def run_mpi(options, results):
    from lib.netns import Network
    from lib.tap import Skip
    got = {}
    for ranks in mpi.RANKS:
        try:
            for _ in range(min(options.rounds, 2)):
                for arm in mpi.ARMS:
                    for row in mpi.rows(Network, arm, ranks):
                        key = row["pairs"], row["pattern"], row["size"]
                        got.setdefault(key, {}).setdefault(arm, []).append(
                            row["value"])
        except Skip as reason:
            say(f"MPI: left out, {reason}")
            return
    for (pairs, pattern, size), values in got.items():
        unit, best = ("us", min) if pattern == "latency" else ("MB/s", max)
        results.append({"bench": "mpi", "pairs": pairs, "pattern": pattern,
                        "size": size, "unit": unit, "all": values,
                        "best": {arm: best(v) for arm, v in values.items()}})
        say(f"MPI, {pairs} pairs {pattern:8}{size:9}  " + "  ".join(
            f"{arm} {best(v):.1f}" for arm, v in values.items()) + f" {unit}")


PARTS = {"perftest": run_perftest, "busy": run_busy, "shaped": run_shaped,
         "dask": run_dask, "idle": run_idle, "cost": run_cost,
         "links": run_links, "many": run_many, "mpi": run_mpi,
         "wire": run_wire}
# These take half an hour more.
BY_NAME = ("cost", "links", "many", "mpi", "wire")


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
    version = subprocess.run([os.environ["E2E_WEFT"], "--version"],
                             capture_output=True, text=True).stdout.strip()
    report = {"date": time.strftime("%Y-%m-%d"), "weft": version,
              "ucx": os.path.basename(os.path.dirname(options.ucx)),
              "rounds": options.rounds, "machine": machine(), "results": []}
    say(f"{report['date']}  {version}, UCX {report['ucx']}, "
        f"{report['machine']['cpu']}, {report['machine']['cpus']} cores, "
        f"best of {options.rounds}")
    os.makedirs(options.out, exist_ok=True)
    for part in options.only.split(","):
        PARTS[part](options, report["results"])
        with open(f"{options.out}/{report['date']}.json", "w") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
