#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs UCX's own gtest for one transport and compares with another.

    ucx_gtest.py GTEST OURS THEIRS [--only REGEX] [--seconds N] [--results FILE]

Each test that GTEST has for OURS (weft_tcp, say) is run, and its like for
THEIRS (tcp) unless FILE has its result from a run before. A test that does not
end in N seconds is "hung", one that ends the program "crashed". Prints a line
in TAP for each that passes for THEIRS and does not for OURS, and one for each
suite in which all do as well; the numbers at the end.

The libraries are those of the build. WEFT_TEST_GTEST_PRELOAD names
libweft_preload.so, for the tests alone.
"""
import argparse
import collections
import json
import os
import re
import select
import signal
import subprocess
import sys
import time

BATCH = 120  # tests of one process: a filter is one argument
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
            param = re.sub(r"^[a-z_]+", "", param)
            if param == "/lo":
                continue  # the other interface does as well
            key = suite[len(transport) + 1:] + test.split("/")[0] + param
            while key in found:
                key += "'"
            if re.search(only, key):
                found[key] = suite + test
    return found


class Run:
    """the results of a list of tests, by full name"""

    def __init__(self, gtest, seconds):
        self.gtest, self.seconds = gtest, seconds
        self.results, self.words = {}, {}

    def all(self, names):
        todo = list(names)
        while todo:
            self.batch(todo[:BATCH])
            left = [n for n in todo if n not in self.results]
            if len(left) == len(todo):  # it does not even start
                self.results[todo[0]] = "crashed"
                left = left[1:]
            todo = left

    def batch(self, names):
        process = subprocess.Popen(
            [self.gtest, "--gtest_color=no", "--gtest_filter=" + ":".join(names)],
            env=environment(), stdin=subprocess.DEVNULL,
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


def compare(ours, theirs, mine, yours, results):
    count = collections.Counter()
    suites = collections.defaultdict(lambda: [0, 0])
    n = 0
    for key in sorted(ours):
        mine_is = mine.results.get(ours[key], "not run")
        other = results.get(key, "none")
        count[mine_is, other] += 1
        worse = mine_is in ("failed", "hung", "crashed", "not run") and \
            other in ("passed", "skipped", "none")
        suite = suites[key.split(".")[0]]
        suite[worse] += 1
        if worse:
            n += 1
            print(f"not ok {n} - {key}: {mine_is}, {theirs}: {other}")
            for line in mine.words.get(ours[key], []):
                print("#   " + line[:200])
        elif mine_is == "skipped" and other == "passed":
            print(f"# {key}: skipped, {theirs} passes:",
                  " ".join(mine.words.get(ours[key], []))[-160:])
    for suite, (well, bad) in sorted(suites.items()):
        if not bad:
            n += 1
            print(f"ok {n} - {suite}: {well} as with {theirs}")
    print(f"1..{n}")
    for (a, b), times in sorted(count.items()):
        print(f"# {times:5} {a}, {theirs} {b}")
    return any(bad for _, bad in suites.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gtest")
    parser.add_argument("ours")
    parser.add_argument("theirs")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=60)
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
    yours = Run(args.gtest, args.seconds)
    yours.all([theirs[key] for key in missing])
    results.update((key, yours.results[theirs[key]]) for key in missing)
    if args.results:
        with open(args.results, "w") as f:
            json.dump(results, f, indent=0)
    mine = Run(args.gtest, args.seconds)
    mine.all(ours.values())
    return compare(ours, args.theirs, mine, yours, results)


if __name__ == "__main__":
    sys.exit(main())
