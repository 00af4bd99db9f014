# SPDX-License-Identifier: BSD-3-Clause
"""
torch.distributed's symmetric memory between two GPUs of this host: copies to and from
the peer's memory, the sums of torch.ops.symm_mem, and tokens that go to experts and
back as by DeepEP.  Both ranks in one container, and each in a pod of its own, under
`weft run`, in turn; once also in pods without weft, for what becomes of it.  Every
value is compared.  Prints a table, and writes symmetric.json and symmetric.log to
$OUT, or to ./out.

As root, with python3 and its torch; weft is that of WEFT_BUILD, of this tree, or of
PATH.
"""
import argparse
import os
import shutil
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(ROOT, "tests", "gpu", "nccl"),
                os.path.join(HERE, "..")]

import job  # noqa: E402
import report  # noqa: E402

GOOD = 0.95  # of the speed in one container
HOME, PODS, BARE = "one container", "two pods, weft run", "two pods"
ENV = {"GLOO_SOCKET_IFNAME": "lo"}


class Pods(job.Place):
    """All have the host's network, and its folder for torch's sockets."""

    def __init__(self, *command):
        self.command = list(command)

    def place(self, rank, folder):
        run = os.path.join(folder, "run")
        os.makedirs(run, exist_ok=True)
        return [job.POD, "pod%d" % rank, *self.command], {"WEFT_RUN_DIR": run}


def arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=3,
                   help="of each arm (default 3)")
    p.add_argument("--timeout", type=int, default=80, help="seconds for one "
                   "round of one arm (default 80)")
    p.add_argument("--limit", type=float, default=float("inf"), metavar="S",
                   help="begin nothing after so many seconds")
    a = p.parse_args()
    a.out = os.environ.get("OUT") or os.path.join(os.getcwd(), "out")
    os.makedirs(a.out, exist_ok=True)
    a.begun = time.time()
    built = os.path.join(os.environ.get("WEFT_BUILD", ROOT), "tools", "weft")
    a.weft = shutil.which(os.path.abspath(built)) or shutil.which("weft")
    if not a.weft:
        p.error("no weft: set WEFT_BUILD, or PATH")
    return a


class Table:
    def __init__(self, out):
        self.out, self.cells, self.failures = out, {}, []
        self.about = {}
        self.log = open(os.path.join(out, "symmetric.log"), "w")

    def fail(self, text):
        self.failures.append(text)
        print("FAILED  %s" % text, flush=True)

    def add(self, arm, number, run):
        """What a job's ranks have reported."""
        self.log.write("--- %s, round %d, exit %s\n%s\n" % (
            arm, number, run.codes, "\n".join(run.errors)))
        self.log.flush()
        for row in run.rows:
            self.cells.setdefault((row["op"], row["bytes"]), {}).setdefault(
                arm, []).append(row["us"])
            if row["bad"]:
                self.fail("%s, round %d: %d wrong values in %s of %d bytes" %
                          (arm, number, row["bad"], row["op"], row["bytes"]))
        if any(run.codes):
            self.fail("%s, round %d: exit %s" % (arm, number, run.codes))
            print("        " + "\n        ".join(run.errors[-8:]))

    def ratio(self, by_arm):
        """Of speeds."""
        if HOME not in by_arm or PODS not in by_arm:
            return None
        return statistics.median(by_arm[HOME]) / statistics.median(by_arm[PODS])

    def print(self):
        below = []
        for (op, size), by_arm in self.cells.items():
            ratio = self.ratio(by_arm)
            if ratio is not None and ratio < GOOD:
                below.append("%s %s %.2f" % (op, report.size_text(size), ratio))
        told = self.report()
        for row in told.rows:
            told.show(row, PODS)
        print("\n%d rows, below %.2f: %s" % (len(self.cells), GOOD,
                                            "; ".join(below) or "none"))

    def report(self):
        told = report.Report(os.path.join(self.out, "symmetric.json"),
                             bare=self.about, failures=self.failures)
        for (op, size), by_arm in self.cells.items():
            told.add("symmetric", "two GPUs", op, size, "us", by_arm)
        return told


def run(number, place, timeout):
    return job.Job(os.path.join(HERE, "rank_symmetric.py"), ENV,
                   {"round": number}, 2, timeout, place).end()


def main():
    a = arguments()
    t = Table(a.out)
    bare = run(0, Pods(), 45)
    t.log.write("--- %s\n%s\n" % (BARE, "\n".join(bare.errors)))
    said = [line for line in bare.errors if "Error" in line]
    t.about = {"exit": bare.codes, "rows": len(bare.rows), "said": said}
    print("%s: exit %s, %d rows\n    %s" % (
        BARE, bare.codes, len(bare.rows), "\n    ".join(said[:6])), flush=True)
    places = {HOME: job.Here(), PODS: Pods(a.weft, "run")}
    for number in range(a.rounds):
        for arm in list(places)[::1 - 2 * (number % 2)]:
            if time.time() - a.begun < a.limit:
                t.add(arm, number, run(number, places[arm], a.timeout))
                t.report().save()
    t.print()
    t.report().save()
    print("%.0f s" % (time.time() - a.begun))
    return bool(t.failures or not t.cells)


if __name__ == "__main__":
    sys.exit(main())
