# SPDX-License-Identifier: BSD-3-Clause
"""
TAP from functions marked @test, run in the order written.

A test fails by raising, skips by raising Skip.  Every test runs in a process
of its own with a deadline; when it is over, whatever it started is gone.
"""
import fnmatch
import multiprocessing
import os
import signal
import sys
import time
import traceback

FORK = multiprocessing.get_context("fork")
TESTS = []


class Skip(Exception):
    pass


def test(seconds, only_long=False):
    """Marks a test that may take @seconds at most."""
    def mark(function):
        TESTS.append((function, seconds, only_long))
        return function
    return mark


def check(condition, message):
    if not condition:
        raise AssertionError(message)


def run_child(function, results):
    os.setsid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    try:
        note = function()
        results.put(("ok", note))
    except Skip as reason:
        results.put(("skip", str(reason)))
    except BaseException as error:
        traceback.print_exc()
        results.put(("not ok", f"{type(error).__name__}: {error}"))
    sys.stdout.flush()
    sys.stderr.flush()


def run_one(function, seconds):
    results = FORK.SimpleQueue()
    child = FORK.Process(target=run_child,
                                    args=(function, results))
    child.start()
    child.join(seconds)
    if child.is_alive():
        # TERM lets the test's own clean-up run, and KILL ends it anyhow.
        child.terminate()
        child.join(20)
        outcome = ("not ok", f"still running after {seconds} s")
    elif results.empty():
        outcome = ("not ok", f"died, exit code {child.exitcode}")
    else:
        outcome = results.get()
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.join()
    return outcome


def indent(text):
    return str(text).replace("\n", "\n#   ")


def main():
    patterns = sys.argv[1:] or ["*"]
    long_run = os.environ.get("E2E_LONG") == "1"
    chosen = [t for t in TESTS
              if any(fnmatch.fnmatch(t[0].__name__, p) for p in patterns)]
    print(f"1..{len(chosen)}", flush=True)
    bad = 0
    file = os.path.basename(sys.argv[0]).removesuffix(".py")
    for number, (function, seconds, only_long) in enumerate(chosen, 1):
        name = f"{file}: {function.__name__}"
        start = time.monotonic()
        if only_long and not long_run:
            outcome, note = "skip", "only in the long run"
        else:
            outcome, note = run_one(function, seconds)
        took = f"{time.monotonic() - start:.1f} s"
        if outcome == "skip":
            print(f"ok {number} - {name} # SKIP {indent(note)}", flush=True)
            continue
        bad += outcome != "ok"
        # at once: other files write there, too
        print(f"{outcome} {number} - {name}\n"
              f"# {took}{': ' + indent(note) if note else ''}", flush=True)
    sys.exit(1 if bad else 0)
