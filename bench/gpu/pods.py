# SPDX-License-Identifier: BSD-3-Clause
"""
NCCL between the pods of one host: introduced to each other by each way there is,
by weft's TCP, by sockets, and, for a yardstick, in shared namespaces.
The ranks of all arms live at once and take turns, so that whatever disturbs the
machine disturbs all alike.  Kernels compare all that is received.  Which way NCCL
took is read in its log and seen in the GPUs' NVLink counters.  Prints tables and
writes pods.json to $OUT, or to ./out.
"""
import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import arms
import job
import measure
import pod_net
import report
import rows

SIZES = [8, 1 << 10, 8 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20, 256 << 20,
         1 << 30]
INTRODUCED = ["preload", "plugin", "env"]
GOOD = 0.98     # of native's speed
TURN_S = 0.25   # an arm's turn takes no longer, but for three operations
TURN_LIMIT_S = 60


class Pods(job.Place):
    """
    A pod for each rank, or for @each ranks; the last one behind a cable.
    @hidden: each has the device node of its own GPU alone.
    """

    def __init__(self, last, cable, hidden):
        self.last, self.cable, self.hidden = last, cable, hidden
        self.mounted = ""

    def place(self, rank, folder):
        run = os.path.join(folder, "run")
        os.makedirs(run, exist_ok=True)
        pod, env = [job.POD, "pod%d" % rank], {"WEFT_RUN_DIR": run}
        if self.hidden:
            pod = ["env", "POD_GPU=%d" % rank] + pod
            if not self.mounted:    # NCCL's shared memory needs a tmpfs
                subprocess.run(["mount", "-t", "tmpfs", "tmpfs", run],
                               check=True)
                self.mounted = run
        if not self.cable:
            return pod, env
        env["NCCL_SOCKET_IFNAME"] = "=%s0,%s1" % (self.cable, self.cable)
        env["NCCL_SOCKET_FAMILY"] = "AF_INET"
        return job.POD_NET + ([] if rank == self.last else ["wait"]) + \
            [self.cable] + pod, env

    def tidy(self):
        if self.cable:
            pod_net.remove(self.cable + "0")
        if self.mounted:
            subprocess.run(["umount", "-l", self.mounted], check=True)


class Lost(Exception):
    """A rank that is gone or says nothing."""


class Taking:
    """The ranks of one arm, which do something when it is their turn."""

    def __init__(self, name, env, a, folder, cable):
        self.name, self.env, self.grown, self.links = name, env, [], {}
        self.a, self.speed, self.nvlink = a, {}, 0
        self.failed, self.checked, self.nccl, self.said = False, 0, "?", ""
        path = os.path.join(folder, name)
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen()
        env = dict(env)
        self.place = job.Here() if env.pop("POD", "") == "no" else \
            Pods(a.ranks - a.pods, cable, a.hidden)
        self.run = job.Job(arms.program_file("rank_turns.py"), env,
                            {"turns": path, "sizes": a.sizes, "nccl": a.nccl},
                            a.ranks, a.timeout, self.place, a.pods)

    def gone(self):
        return [p.returncode for p in self.run.procs if p.poll() is not None]

    def accept(self):
        """They have a context, and no communicator yet."""
        self.server.settimeout(1)
        while len(self.links) < self.a.ranks:
            if self.gone() or time.time() > self.run.deadline:
                raise Lost("exit %s before its turn" % self.gone())
            try:
                link = self.server.accept()[0]
            except socket.timeout:
                continue
            link.settimeout(TURN_LIMIT_S)
            lines = link.makefile("r")
            hello = lines.readline()
            if not hello:
                raise Lost("a rank is gone")
            self.links[json.loads(hello)["rank"]] = (link, lines)
        self.grown = [0] * self.a.ranks

    def do(self, what, **how):
        """Has all ranks do it; their answers, by rank."""
        line = json.dumps(dict(how, do=what)) + "\n"
        answers = []
        try:
            for link, _ in self.links.values():
                link.sendall(line.encode())
            for rank in range(self.a.ranks):
                said = self.links[rank][1].readline()
                if not said:
                    raise Lost("rank %d is gone" % rank)
                answers.append(json.loads(said))
                # what a peer still has mapped is not free at its owner's end
                if what != "end":
                    self.grown[rank] += answers[-1]["grown"]
        except (OSError, ValueError) as e:
            raise Lost("%s: %s" % (what, e)) from e
        return answers

    def expect(self, op, size):
        """About how long one takes, from what is known by now, or 0."""
        near = [s for o, s in self.speed if o == op and s <= size]
        if not near:
            return 0
        return self.speed[op, max(near)] * size / max(near) \
            if size > 1 << 20 else self.speed[op, max(near)]

    def turn(self, op, size):
        checked, warm, count, series = amount(size)
        us = self.expect(op, size)
        if us:
            count = min(count, max(int(TURN_S * 1e6 / (series * us)), 1))
        if us > TURN_S * 1e6 / 10:
            checked, warm, series = 1, 1, 3
        said = self.do("turn", op=op, size=size, checked=checked, warm=warm,
                       count=count, series=series)
        # the slowest: the root of a broadcast is early
        us = max(s["us"] for s in said)
        self.speed[op, size] = us
        return us, sum(s["bad"] for s in said), checked + 1

    def ways(self):
        """How NCCL says that it goes from one pod to another."""
        each = self.a.pods
        return sorted({way for a, b, way in job.channels(self.run.log())
                       if a // each != b // each})

    def stop(self):
        for link, lines in self.links.values():
            lines.close()
            link.close()
        self.run.deadline = min(self.run.deadline, time.time() + 20)
        self.run.end()
        self.left = job.left(self.run.dir)
        self.place.tidy()


class Counters:
    """Bytes that the GPUs have sent and received over NVLink."""
    FIELDS = (138, 139)     # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _RX: KiB
    ALL_LINKS = 0xffffffff

    def __init__(self, gpus):
        self.handles = []
        try:
            import pynvml
            self.nvml = pynvml
            pynvml.nvmlInit()
            self.handles = [pynvml.nvmlDeviceGetHandleByIndex(i)
                            for i in range(gpus)]
            self.bytes()
            self.why = ""
        except Exception as e:      # no counters are no failure
            self.handles, self.why = [], "%s: %s" % (type(e).__name__, e)

    def bytes(self):
        total = 0
        for h in self.handles:
            for value in self.nvml.nvmlDeviceGetFieldValues(
                    h, [(f, self.ALL_LINKS) for f in self.FIELDS]):
                if value.nvmlReturn:
                    raise self.nvml.NVMLError(value.nvmlReturn)
                total += value.value.ullVal << 10
        return total


def amount(size):
    """Operations compared one by one; to warm up; timed, and how often."""
    if size <= 64 << 10:
        return 10, 10, 100, 5
    if size <= 1 << 20:
        return 5, 5, 40, 5
    if size <= 8 << 20:
        return 4, 3, 20, 5
    if size <= 64 << 20:
        return 3, 2, 8, 5
    return 2, 1, 4, 5


def arguments():
    p = argparse.ArgumentParser(prog="bench/gpu/run.sh --pods",
                                description=__doc__)
    p.add_argument("--plugin", required=True, help=argparse.SUPPRESS)
    p.add_argument("--out", required=True, help=argparse.SUPPRESS)
    p.add_argument("pods", type=int, nargs="?", default=1,
                   help="ranks in each pod (default 1)")
    p.add_argument("--ranks", type=int, default=2,
                   help="processes; a GPU each (default 2)")
    p.add_argument("--rounds", type=int, default=5,
                   help="turns of each arm at each size (default 5)")
    p.add_argument("--ops", default=",".join(rows.OPS))
    p.add_argument("--sizes", default=",".join(map(str, SIZES)),
                   help="bytes, comma list")
    p.add_argument("--arms", help="some of " +
                   ", ".join(job.known_arms("")))
    p.add_argument("--net", action="store_true",
                   help="the last pod has a network namespace of its own, with "
                   "a cable (veth) to the others'")
    p.add_argument("--hidden", action="store_true",
                   help="each pod has the device node of its own GPU alone")
    p.add_argument("--set", action="append", default=[], metavar="ARM:N=V",
                   help="a setting more for one arm; {rank} is the rank")
    p.add_argument("--nccl", help="a libnccl.so.2, instead of torch's")
    p.add_argument("--limit", type=float, default=float("inf"), metavar="S",
                   help="begin no turn after so many seconds")
    p.add_argument("--timeout", type=int, default=580,
                   help="seconds for all (default 580)")
    a = p.parse_args()
    a.begun = time.time()
    a.ops = a.ops.split(",")
    a.sizes = [int(s) for s in a.sizes.split(",")]
    a.nccl = os.path.abspath(a.nccl) if a.nccl else job.torch_nccl()
    known = job.known_arms(job.together(a.plugin))
    names = a.arms.split(",") if a.arms else list(known)
    for what, given, there in (("arm", names, known),
                               ("operation", a.ops, rows.OPS)):
        for name in given:
            if name not in there:
                p.error("no %s is named '%s'; there are %s" %
                        (what, name, ", ".join(there)))
    a.arms = {name: known[name] for name in names}
    for extra in a.set:
        name, _, setting = extra.partition(":")
        key, _, value = setting.partition("=")
        if not key or name not in a.arms:
            p.error("--set wants ARM:NAME=VALUE, not '%s'" % extra)
        a.arms[name][key] = value
    return a


class Table:
    """What was measured, and what was wrong."""

    def __init__(self, a):
        self.a, self.cells, self.failures = a, {}, []
        self.about = {}

    def fail(self, text):
        self.failures.append(text)
        print("FAILED %s" % text)

    def add(self, arm, op, size, us):
        self.cells.setdefault((op, size), {}).setdefault(arm, []).append(us)

    def rows(self):
        """(op, size, {arm: median}, {arm: all})"""
        for op in self.a.ops:
            for size in self.a.sizes:
                by_arm = self.cells.get((op, size), {})
                yield op, size, {n: statistics.median(v)
                                 for n, v in by_arm.items()}, by_arm

    def busbw(self, op, size, us):
        return size / us * measure.bus_factor(op, self.a.ranks) / 1e3

    def print(self):
        told = self.report()
        for row in told.rows:
            told.show(row, "preload")
        print()
        for name in INTRODUCED:
            if name in self.a.arms:
                self.verdict(name)

    def verdict(self, name):
        """Rows below what is wanted; those that native itself falls to."""
        n, below, beyond = 0, [], []
        for op, size, med, by_arm in self.rows():
            if name not in med or "native" not in med:
                continue
            n += 1
            ratio = med["native"] / med[name]
            if ratio < GOOD:
                text = "%s %s %.2f" % (op, report.size_text(size), ratio)
                (beyond if med[name] > max(by_arm["native"]) else
                 below).append(text)
        print("%s: %d of %d rows at %.2f of native or better; within native's "
              "own scatter: %s; below: %s" % (
                  name, n - len(below) - len(beyond), n, GOOD,
                  ", ".join(below) or "none", ", ".join(beyond) or "none"))
        self.about.setdefault(name, {}).update(
            rows=n, scatter=below, below=beyond)

    def report(self):
        a = self.a
        about = {n: dict(self.about.get(n, {}), env={
            k: os.path.basename(v) for k, v in e.items()})
            for n, e in a.arms.items()}
        told = report.Report(os.path.join(a.out, "pods.json"), ranks=a.ranks,
                             arms=about, failures=self.failures)
        where = "%d in each pod" % a.pods + (", hidden" if a.hidden else "") + \
            (", a network namespace" if a.net else "")
        for op, size, _, by_arm in self.rows():
            for unit, figure in (("us", lambda us: us), ("GB/s", lambda us:
                                 self.busbw(op, size, us))):
                if not by_arm or unit == "GB/s" and size < 65536:
                    continue
                told.add("nccl", where, op, size, unit,
                         {n: list(map(figure, by_arm[n])) for n in a.arms
                          if n in by_arm})
        return told

    def save(self):
        told = self.report()
        told.save()
        return told.path


def info(a, arm):
    """What `weft info nccl` says in the arm's first pod."""
    weft = job.find(a.plugin, "weft", "tools") or shutil.which("weft")
    if not weft or a.net or type(arm.place) is job.Here:
        return
    prefix, env = arm.place.place(0, arm.run.dir)
    env = {**os.environ, **arm.env, **env}
    preload = env.pop("LD_PRELOAD", "")
    try:
        said = subprocess.run(
            prefix + ["env", "LD_PRELOAD=" + preload, weft, "info", "nccl"],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=30).stdout
    except subprocess.TimeoutExpired:
        said = "no end within 30 s\n"
    arm.said = said
    for line in said.splitlines():
        if "introduc" in line.lower():
            print("%-8s weft info: %s" % (arm.name, line.strip()))


def guarded(t, arm, fn, *args):
    """An arm that fails drops out, and the others go on."""
    try:
        return fn(*args)
    except Lost as e:
        arm.failed = True
        for p in arm.run.procs:
            p.kill()
        arm.stop()
        t.fail("%s: %s, exit %s\n%s" % (arm.name, e, arm.run.codes,
                                        arm.run.complaint()))
        return None


def play(a, t, playing, counters):
    """Round by round, each arm in turn at each size; rounds that are whole."""
    number = done = 0
    for done in range(a.rounds):
        for op in a.ops:
            for size in a.sizes:
                playing = [x for x in playing if not x.failed]
                if time.time() - a.begun > a.limit:
                    return done
                number += 1
                first = number % max(len(playing), 1)
                for arm in playing[first:] + playing[:first]:
                    before = counters.bytes()
                    got = guarded(t, arm, arm.turn, op, size)
                    arm.nvlink += counters.bytes() - before
                    if not got:
                        continue
                    us, bad, checked = got
                    arm.checked += checked
                    t.add(arm.name, op, size, us)
                    if bad:
                        t.fail("%s: %d wrong values in %s of %d" %
                               (arm.name, bad, op, size))
        t.save()
    return a.rounds


def judge(a, t, arm, native):
    """The way it went, against the way it was to go."""
    ways, carried = arm.ways(), arm.run.carried()
    took = {w.split("/")[0] for w in ways}
    by_socket = arm.name.startswith("socket")
    hidden = a.hidden and arm.name in INTRODUCED
    want = "NET" if arm.name == "carried" or by_socket else \
        "SHM" if hidden else "P2P"
    if took != {want}:
        t.fail("%s: NCCL's log says %s, not %s alone, between pods" %
               (arm.name, ways or "nothing", want))
    if bool(sum(carried.values())) != (arm.name == "carried"):
        t.fail("%s: weft carried %s" % (arm.name, carried or "nothing"))
    mib = max(arm.grown) / (1 << 20)
    more = mib - max(native.grown) / (1 << 20) if native else None
    if arm.name in INTRODUCED and more is not None and more > 0 and \
            not hidden:
        t.fail("%s: %.0f MiB of GPU memory more than native" %
               (arm.name, more))
    if native and native.nvlink and not hidden and (
            arm.nvlink < native.nvlink / 2 if arm.name in INTRODUCED else
            by_socket and arm.nvlink > native.nvlink / 10):
        t.fail("%s: %.1f GB went by NVLink, native's %.1f" %
               (arm.name, arm.nvlink / 1e9, native.nvlink / 1e9))
    if arm.left and arm.name in INTRODUCED:
        t.fail("%s: left in the common folder: %s" % (arm.name,
                                                      arm.left[:5]))
    if arm.run.codes and any(arm.run.codes):
        t.fail("%s: exit %s\n%s" % (arm.name, arm.run.codes,
                                    arm.run.complaint()))
    t.about.setdefault(arm.name, {}).update(
        ways=ways, carried=carried, gpu_mib=mib, gpu_mib_more=more,
        nvlink_bytes=arm.nvlink, operations_checked=arm.checked,
        nccl=arm.nccl)
    for line in arm.run.log().splitlines() + arm.run.errors:
        if "introduced" in line:
            print("%-8s %s" % (arm.name, re.sub(
                r"^\S+ \[\d+\] NCCL ", "", line)))
            break
    print("%-8s NCCL %s, %s; GPU memory %.0f MiB%s; NVLink %.1f GB; %d "
          "operations compared by kernels on each GPU" % (
              arm.name, arm.nccl, "+".join(ways) or "?", mib,
              "" if more is None else " (%+.0f)" % more, arm.nvlink / 1e9,
              arm.checked))


def main():
    a = arguments()
    folder = tempfile.mkdtemp(prefix="weft-turns-")
    t, counters = Table(a), Counters(a.ranks)
    if counters.why:
        print("no NVLink counters: %s" % counters.why)
    # all start at once: most of it is Python's imports
    playing = [Taking(name, env, a, folder, "wgpu%d" % i if a.net else "")
               for i, (name, env) in enumerate(a.arms.items())]
    for arm in playing:
        guarded(t, arm, arm.accept)
    print("%d arms are up after %.0f s" % (len(playing),
                                           time.time() - a.begun))
    for arm in playing:
        if arm.failed:
            continue
        said = guarded(t, arm, arm.do, "connect")
        if said:
            arm.nccl = said[0]["nccl"]
            info(a, arm)
            if any(s["warmed"] for s in said):
                t.fail("%s: the kernels themselves are wrong" % arm.name)
    rounds = play(a, t, [x for x in playing if not x.failed],
                  counters)
    ended = [x for x in playing if not x.failed]
    for arm in ended:
        if guarded(t, arm, arm.do, "end"):
            arm.stop()
    with open(os.path.join(a.out, "pods.log"), "w") as f:
        for arm in playing:
            f.write("# %s\n%s\n%s\n" % (arm.name, arm.said,
                                        arm.run.log()[:2000000]))
    ended = [x for x in ended if not x.failed]
    native = next((x for x in ended if x.name == "native"), None)
    print()
    for arm in ended:
        judge(a, t, arm, native)
    t.print()
    print("\n%s: %d whole rounds, %.0f s" % (t.save(), rounds,
                                            time.time() - a.begun))
    shutil.rmtree(folder, ignore_errors=True)
    for text in t.failures:
        print("FAILED %s" % text.splitlines()[0])
    sys.exit(1 if t.failures else 0)


if __name__ == "__main__":
    main()
