# SPDX-License-Identifier: BSD-3-Clause
"""
NCCL between pods: what must hold whatever the speed, where weft's TCP carries and
where weft has introduced the pods to each other.  Each rank runs in a pod of its
own (tests/gpu/pod.sh), and a kernel checks every value on the receiving GPU.
"""
import argparse
import glob
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import job
from carried import CARRIED
from introduced import INTRODUCED

CASES = {**CARRIED, **INTRODUCED}
# there is one cable, and one line of text at a time
cable, printing = threading.Lock(), threading.Lock()


def run_case(name, a):
    case = CASES[name]()
    why = case.skip()
    if not why and case.first > job.nccl_version(a.nccl):
        why = "NCCL is older than %d; --nccl names a newer" % case.first
    if not why and case.gpus > a.gpus:
        why = case.share(a)
    if why:
        print("skipped  %s: %s" % (name, why))
        return {"case": name, "what": case.__doc__, "skipped": why}
    # old releases take a name alone
    plugin = os.environ.get("NCCL_NET_PLUGIN", a.plugin)
    case.file = a.together
    with cable if "NCCL_SOCKET_IFNAME" in case.env else threading.Lock():
        start = time.time()
        try:
            run, bad = case.carry_out(a, plugin)
        finally:
            case.tidy()
    rows = [r for r in run.rows if "case" in r]
    why = next((r["skipped"] for r in rows if "skipped" in r), "")
    if why and not bad:
        print("skipped  %s: %s" % (name, why))
        return {"case": name, "what": case.__doc__, "skipped": why}
    said = " ".join("%.2f %s GB" % (n / 1e9, d)
                    for d, n in run.carried().items())
    ways = sorted({w for _, _, w in job.channels(run.log())})
    with printing:
        print("%-8s %-70s %5.1f s  %s" % (
            "FAILED" if bad else "ok", "%s: %s" % (name, case.__doc__),
            time.time() - start, bad or said or "+".join(ways)))
        if rows and not bad:
            print("        " + json.dumps(rows[0]))
        with open(os.path.join(a.out, "cases.log"), "a") as f:
            f.write("\n# %s: %s\n%s\n%s\n" % (
                name, bad or "ok", "\n".join(run.errors),
                run.log()[:300000 if bad else 30000]))
    return {"case": name, "what": case.__doc__, "bad": bad, "rows": rows,
            "carried": run.carried(), "ways": ways}


def main():
    p = argparse.ArgumentParser(prog="tests/gpu/run.sh",
                                description=__doc__)
    p.add_argument("--plugin", required=True, help=argparse.SUPPRESS)
    p.add_argument("--out", required=True, help=argparse.SUPPRESS)
    p.add_argument("--nccl", help="a libnccl.so.2, instead of torch's")
    p.add_argument("--jobs", type=int, default=1,
                   help="so many cases at a time (default 1)")
    p.add_argument("names", nargs="*", metavar="CASE",
                   help="carried: %s; introduced: %s" % (
                       ", ".join(CARRIED), ", ".join(INTRODUCED)))
    a = p.parse_args()
    a.nccl = os.path.abspath(a.nccl) if a.nccl else job.torch_nccl()
    a.together = job.together(a.plugin)
    groups = {"carried": CARRIED, "introduced": INTRODUCED}
    names = [n for name in a.names or groups
             for n in groups.get(name, [name])]
    unknown = [n for n in names if n not in CASES]
    if unknown:
        p.error("no case is named '%s'; there are %s" %
                (unknown[0], ", ".join(CASES)))
    a.gpus = len(glob.glob("/dev/nvidia[0-9]*"))
    open(os.path.join(a.out, "cases.log"), "w").close()
    with ThreadPoolExecutor(a.jobs) as pool:
        done = list(pool.map(lambda name: run_case(name, a), names))
    with open(os.path.join(a.out, "cases.json"), "w") as f:
        json.dump(done, f, indent=1)
    tried = [d for d in done if "skipped" not in d]
    failed = [d["case"] for d in tried if d["bad"]]
    print("%d of %d cases hold, %d skipped%s" % (
        len(tried) - len(failed), len(tried), len(done) - len(tried),
        failed and "; not: " + ", ".join(failed) or ""))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
