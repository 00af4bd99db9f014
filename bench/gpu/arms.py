# SPDX-License-Identifier: BSD-3-Clause
"""Runs every arm in turn, round by round, and lays the results side by side."""
import argparse
import os
import random
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "tests", "gpu", "nccl"),
                os.path.join(HERE, "..")]

import job  # noqa: E402
import measure  # noqa: E402
import report  # noqa: E402
import rows  # noqa: E402

ARMS = {
    **job.SOCKETS,
    # with P2P off as between hosts: so is NVLink
    "weft": {"NCCL_NET": "weft"},
    # NCCL's own two channels, and as many as "weft" builds without a tuner
    "weft-2ch": {"NCCL_NET": "weft", "NCCL_TUNER_PLUGIN": "none"},
    "weft-4ch": {"NCCL_NET": "weft", "NCCL_TUNER_PLUGIN": "none",
                 "NCCL_MIN_NCHANNELS": "4"},
}


def arguments():
    p = argparse.ArgumentParser(
        prog="bench/gpu/run.sh",
        description="NCCL over weft against NCCL over its own sockets.")
    p.add_argument("--plugin", required=True, help=argparse.SUPPRESS)
    p.add_argument("--out", required=True, help=argparse.SUPPRESS)
    p.add_argument("--quick", action="store_true",
                   help="all_reduce, torch, one round")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--repeat", type=int, default=1,
                   help="so many times the iterations (default 1)")
    p.add_argument("--ranks", type=int, default=2,
                   help="processes; a GPU each (default 2)")
    p.add_argument("--ops", default=",".join(rows.OPS))
    p.add_argument("--sizes", help="bytes, comma list")
    p.add_argument("--arms")
    p.add_argument("--limit", type=int, default=0, metavar="S",
                   help="begin nothing new after so many seconds")
    p.add_argument("--set", action="append", default=[], metavar="ARM:N=V",
                   help="a setting more for one arm, or a new one like weft; "
                   "{rank} is the rank")
    p.add_argument("--programs", default="torch,cupy",
                   help="torch, cupy, or both")
    p.add_argument("--nccl", action="append", default=[], metavar="FILE",
                   help="also values and speed with this libnccl.so.2")
    p.add_argument("--no-kill", action="store_true",
                   help="leave the death of a rank out")
    p.add_argument("--timeout", type=int, default=150,
                   help="seconds for one arm of one round")
    a = p.parse_args()
    if a.quick:
        a.rounds, a.ops, a.programs = 1, "all_reduce", "torch"
    arms = {}
    for name in (a.arms or ",".join(ARMS)).split(","):
        if name not in ARMS:
            p.error("no arm is named '%s'; there are %s" %
                    (name, ", ".join(ARMS)))
        arms[name] = dict(ARMS[name])
    for extra in a.set:
        name, _, setting = extra.partition(":")
        key, _, value = setting.partition("=")
        if not key:
            p.error("--set wants ARM:NAME=VALUE, not '%s'" % extra)
        arms.setdefault(name, dict(ARMS["weft"]))[key] = value
    for env in arms.values():
        env.setdefault("NCCL_NET_PLUGIN", a.plugin)
    a.arms = arms
    a.ops = a.ops.split(",")
    a.sizes = [int(s) for s in a.sizes.split(",")] if a.sizes \
        else measure.SIZES
    a.end = time.time() + a.limit if a.limit else float("inf")
    a.longest = 0
    return a


def program_file(name):
    return os.path.join(HERE, name)


def run_one(a, rows, failures, program, arm, env, opt, rounds_no):
    begun = time.time()
    # what the limit would cut short is no failure
    if a.end - begun < max(a.longest, 1):
        print("left out: %s, %s, round %d" % (program, arm, rounds_no))
        return
    timeout = min(a.timeout, a.end - begun)
    run = job.Job(program_file("rank_torch.py" if program == "torch" else
                               "rank_raw.py"), env, opt, a.ranks,
                  timeout).end()
    a.longest = max(a.longest, time.time() - begun)
    where = "%s, %s, round %d" % (program, arm, rounds_no)
    with open(os.path.join(a.out, "nccl.%s.%d.log" % (arm, rounds_no)),
              "w") as f:
        f.write(run.log()[:200000])
    if any(c != 0 for c in run.codes):
        failures.append(where)
        print("FAILED %s: exit %s\n%s" % (where, run.codes, run.complaint()))
        return
    used = run.network()
    want = env.get("NCCL_NET", "")
    if want.lower() not in used.lower():
        failures.append("%s used network %s" % (where, used))
        print("FAILED %s: network %s" % (where, used))
    version = next((r["nccl"] for r in run.rows if "nccl" in r), "?")
    bad = 0
    for r in run.rows:
        if "op" not in r:
            continue
        bad += r["bad"]
        rows.append(dict(r, arm=arm, program=program, round=rounds_no,
                         network=used, nccl=version))
    if bad:
        failures.append("%s: %d wrong values" % (where, bad))
    carried = run.carried()
    if want == "weft" and not carried.get("tcp"):
        failures.append("%s: weft's TCP counters saw nothing" % where)
    raised, tuner = run.tuned()
    if raised and not tuner:
        failures.append("%s: channels raised without weft's tuner" % where)
    print("done %-8s %-12s round %d: NCCL %s, network %s, weft carried "
          "%s GB, wrong values %d%s" %
          (program, arm, rounds_no, version, used,
           "+".join("%.1f %s" % (n / 1e9, d) for d, n in carried.items())
           or "0", bad, (", tuner weft" if tuner else "") +
           (", GPU memory" if "GDRDMA" in run.log() else "")))


def death(a, lib, failures, extra):
    run = job.Job(program_file("rank_raw.py"), a.arms["weft"],
                  {"ops": [], "sizes": [], "kill": True, "nccl": lib},
                  a.ranks, min(a.timeout, 60)).end()
    seen = next((r for r in run.rows if "kill_error" in r), None)
    extra["kill"] = seen
    if not seen or not seen["kill_error"]:
        failures.append("a killed rank: the survivors were not told")
        print("FAILED killed rank: %s\n%s" % (seen, run.complaint()))
    else:
        print("a killed rank: NCCL error %d after %.2f s, abort took %.2f s" %
              (seen["kill_error"], seen["kill_told_s"],
               seen["kill_abort_s"]))


def have(module):
    return subprocess.run([sys.executable, "-c", "import " + module],
                          capture_output=True).returncode == 0


# What a rank program reports of each operation, and in what unit.
FIGURES = {"busbw": "GB/s", "us": "us", "p50": "us, p50", "p99": "us, p99",
           "most": "us, most", "cpu_s_per_gb": "CPU s per GB"}


def told(a, rows, failures, extra):
    """All rounds of an arm in a row; returns the file."""
    out = report.Report(
        os.path.join(a.out, "results.json"), ranks=a.ranks,
        nccl=", ".join(sorted({r["nccl"] for r in rows})), failures=failures,
        env={n: {k: v for k, v in e.items() if k != "NCCL_NET_PLUGIN"}
             for n, e in a.arms.items()}, **extra)
    keys = dict.fromkeys((r["program"], r["op"], r["bytes"]) for r in rows)
    for figure, unit in FIGURES.items():
        for key in keys:
            got = {arm: [r[figure] for r in rows if r["arm"] == arm and
                         (r["program"], r["op"], r["bytes"]) == key]
                   for arm in a.arms}
            # small ones are bound by what is not counted in bytes
            if key[2] >= 1 << 20 or unit.startswith("us"):
                out.row("nccl", *key, unit, got, "weft")
    out.save()
    return out.path


def main():
    a = arguments()
    rows, failures, extra = [], [], {}
    programs = [p for p in a.programs.split(",") if have(p)]
    if not programs:
        sys.exit("neither torch nor cupy can be imported by python3")
    opt = {"ops": a.ops, "sizes": a.sizes, "repeat": a.repeat}
    for number in range(1, a.rounds + 1):
        for program in programs:
            # in another order each round: an arm may slow the next one down
            for arm in random.Random(number).sample(list(a.arms), len(a.arms)):
                run_one(a, rows, failures, program, arm, a.arms[arm], opt,
                        number)
    for lib in a.nccl:
        for arm, env in a.arms.items():
            run_one(a, rows, failures, os.path.basename(lib), arm, env,
                    dict(opt, nccl=os.path.abspath(lib)), 1)
    if not a.no_kill and not a.quick and "weft" in a.arms and \
            have("cupy") and time.time() < a.end:
        death(a, a.nccl[0] if a.nccl else job.torch_nccl(), failures, extra)
    path = told(a, rows, failures, extra)
    print("\n%s" % path)
    for f in failures:
        print("FAILED %s" % f)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
