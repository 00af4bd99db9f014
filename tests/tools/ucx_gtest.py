#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs UCX's own gtest for one transport and compares with another.

    ucx_gtest.py GTEST OURS THEIRS [--only REGEX] [--seconds N] [--jobs N]
        [--known FILE] [--results FILE]

Each test that GTEST has for OURS (weft_tcp, say) is run, and its like for
THEIRS (tcp) unless the results in FILE have it from a run before. A test that
does not end in N seconds is "hung", one that ends the program "crashed".

A test differs when it passes or is skipped for THEIRS and does neither for OURS,
or has no like. FILE with what is known has a heading "## OURS" and below it a
table: names in backquotes, with * and ?, and how they end. Prints a line in TAP
for each test that differs and is not known, and one for each suite with no such
test; the known ones that differ no longer, and the numbers at the end.

The libraries are those of the build. WEFT_TEST_GTEST_PRELOAD names
libweft_preload.so, for the tests alone. N processes run them at once (--jobs);
each has a fresh file WEFT_TEST_VERBS (tests/lib/verbs.sh) of its own.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time

BATCH = 120  # tests of one process: a filter is one argument
# what tests/host/ucx_gtest.sh has for them; one device of each kind will do
TRANSPORTS_AND_DEVICE = re.compile(r"^[a-z_,]+(/(w0|nvlink|fake0:1)(?=/|$))?")
OTHER_DEVICE = re.compile(r"^/(lo|fake1:1)")
RESULT = re.compile(r"\[ *(OK|FAILED|SKIPPED) *\] ([^ ,(]+)")
RUN = re.compile(r"\[ RUN +\] (\S+)")


def environment():
    env = dict(os.environ, WEFT_UCX="on", UCX_WARN_UNUSED_ENV_VARS="n")
    env.setdefault("UCX_HANDLE_ERRORS", "bt")
    # weft is for the tests, not for what started this
    if "WEFT_TEST_GTEST_PRELOAD" in env:
        env["LD_PRELOAD"] = env.pop("WEFT_TEST_GTEST_PRELOAD")
    return env


def listed(gtest):
    """suite -> [(test, parameter)], as the program lists them"""
    out = subprocess.run([gtest, "--gtest_list_tests"], env=environment(),
                         stdout=subprocess.PIPE, timeout=120, check=True)
    tests = collections.defaultdict(list)
    suite = None
    for line in out.stdout.decode(errors="replace").splitlines():
        name, _, param = line.partition("# GetParam() = ")
        if suite and name.startswith("  "):
            tests[suite].append((name.strip(), param.strip()))
        elif name.rstrip().endswith("."):
            suite = name.strip()
    return tests


def of_transport(tests, transport, only):
    """key -> full name; keys are alike for all transports"""
    found = {}
    for suite, members in tests.items():
        if not suite.startswith(transport + "/"):
            continue
        for test, param in members:
            param = TRANSPORTS_AND_DEVICE.sub("", param)
            if OTHER_DEVICE.match(param):
                continue
            key = suite[len(transport) + 1:] + test.split("/")[0] + param
            while key in found:
                key += "'"
            if re.search(only, key):
                found[key] = suite + test
    return found


class Run:
    """the results of a list of tests, by full name"""

    def __init__(self, gtest, seconds, jobs):
        self.gtest, self.seconds, self.jobs = gtest, seconds, jobs
        self.results, self.words = {}, {}

    def all(self, names):
        names = list(names)
        size = max(1, min(BATCH, len(names) // (4 * self.jobs)))
        parts = [names[i:i + size] for i in range(0, len(names), size)]
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for _ in pool.map(self.part, parts):
                print(f"# {len(self.results)} of {len(names)}", flush=True)

    def part(self, todo):
        while todo:
            self.batch(todo)
            left = [n for n in todo if n not in self.results]
            if len(left) == len(todo):  # it does not even start
                self.results[todo[0]] = "crashed"
                left = left[1:]
            todo = left

    def batch(self, names):
        env = environment()
        if "WEFT_TEST_VERBS" in env:
            env["WEFT_TEST_VERBS"] += f".{threading.get_ident()}"
            if os.path.exists(env["WEFT_TEST_VERBS"]):
                os.remove(env["WEFT_TEST_VERBS"])
        process = subprocess.Popen(
            [self.gtest, "--gtest_color=no", "--gtest_filter=" + ":".join(names)],
            env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True)
        current, lines, rest = None, [], b""
        deadline = time.monotonic() + self.seconds
        while True:
            wait = deadline - time.monotonic()
            ready = wait > 0 and select.select([process.stdout], [], [], wait)[0]
            if not ready:
                break
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                break
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                text = line.decode(errors="replace")
                started, ended = RUN.search(text), RESULT.search(text)
                if started:
                    current, lines = started[1], []
                    deadline = time.monotonic() + self.seconds
                elif ended and ended[2] == current:
                    self.done(current, ended[1], lines + [text])
                    current = None
                    deadline = time.monotonic() + self.seconds
                else:
                    lines.append(text)
        hung = process.poll() is None and not (ready and not data)
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        if current:
            self.done(current, "hung" if hung else "crashed", lines)

    def done(self, name, result, lines):
        # UCX's own way of skipping, in tests that then pass
        if result == "OK" and any("[     SKIP ]" in line for line in lines):
            result = "SKIPPED"
        self.results[name] = {"OK": "passed", "FAILED": "failed",
                              "SKIPPED": "skipped"}.get(result, result)
        self.words[name] = [l for l in lines if "[ INFO " not in l][-6:]


def known_of(path, ours):
    """[(pattern, how it ends)] of the table below the heading OURS"""
    known, here = [], False
    with open(path) as f:
        for line in f:
            if line.startswith("#"):
                here = line.split()[1:] == [ours]
            elif here and line.startswith("| `"):
                names, ends = line.split("|")[1:3]
                known += [(name, ends) for name in re.findall("`(.+?)`", names)]
    return known


def names(pattern, key):
    return fnmatch.fnmatchcase(key, pattern) or \
        fnmatch.fnmatchcase(key, pattern + "/*")


def compare(ours, theirs, mine, results, known):
    count = collections.Counter()
    suites = collections.defaultdict(lambda: [0, 0])
    differ, well = collections.Counter(), set()
    n = 0
    for key in sorted(ours):
        mine_is = mine.results.get(ours[key], "not run")
        other = results.get(key, "none")
        count[mine_is, other] += 1
        worse = mine_is in ("failed", "hung", "crashed", "not run") and \
            other in ("passed", "skipped", "none")
        of_list = [entry for entry in known if names(entry[0], key)]
        if not worse:
            well.update(of_list)
        else:
            of_list = [entry for entry in of_list if mine_is in entry[1]]
            differ.update(of_list)
        suite = suites[key.split(".")[0]]
        suite[worse and not of_list] += 1
        if worse and not of_list:
            n += 1
            print(f"not ok {n} - {key}: {mine_is}, {theirs}: {other}")
            for line in mine.words.get(ours[key], []):
                print("#   " + line[:200])
        elif mine_is == "skipped" and other == "passed":
            print(f"# {key}: skipped, {theirs} passes:",
                  " ".join(mine.words.get(ours[key], []))[-160:])
    for suite, (right, wrong) in sorted(suites.items()):
        if not wrong:
            n += 1
            print(f"ok {n} - {suite}: {right} as with {theirs}, or known")
    print(f"1..{n}")
    for pattern, ends in known:
        if differ[pattern, ends]:
            print(f"# {differ[pattern, ends]:5} {ends.strip()}: {pattern}, known")
        elif (pattern, ends) in well:
            print(f"# differs no longer: {pattern}")
    for (a, b), times in sorted(count.items()):
        print(f"# {times:5} {a}, {theirs} {b}")
    return any(wrong for _, wrong in suites.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gtest")
    parser.add_argument("ours")
    parser.add_argument("theirs")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--known")
    parser.add_argument("--results")
    args = parser.parse_args()
    results = {}
    if args.results and os.path.exists(args.results):
        with open(args.results) as f:
            results = json.load(f)
    tests = listed(args.gtest)
    ours = of_transport(tests, args.ours, args.only)
    theirs = of_transport(tests, args.theirs, args.only)
    if not ours:
        print(f"1..0 # SKIP no test of {args.gtest} is for {args.ours}")
        return 0
    missing = [key for key in ours if key in theirs and key not in results]
    yours = Run(args.gtest, args.seconds, args.jobs)
    yours.all([theirs[key] for key in missing])
    results.update((key, yours.results[theirs[key]]) for key in missing)
    if args.results:
        with open(args.results, "w") as f:
            json.dump(results, f, indent=0)
    mine = Run(args.gtest, args.seconds, args.jobs)
    mine.all(ours.values())
    known = known_of(args.known, args.ours) if args.known else []
    return compare(ours, args.theirs, mine, results, known)


if __name__ == "__main__":
    sys.exit(main())
