# SPDX-License-Identifier: BSD-3-Clause
"""ucxx alone: its own benchmark, and who carried which message how."""
import glob
import os
import re
import subprocess
import sys
import tempfile

from lib.cluster import weft_command
from lib.counters import payload_received, read, total
from lib.program import clean_env, run
from lib.tap import Skip, check, main, test

HERE = os.path.dirname(os.path.abspath(__file__))
EXCHANGE = f"{HERE}/programs/exchange.py"

SMALL = [1, 8, 100, 1000, 4096]
LARGE = [65536, 100001, 1 << 20, (8 << 20) + 13, 64 << 20]


def benchmark(mode, tries=8):
    """
    Its server closes once it has sent, without waiting until that has come: on a
    busy machine the client's last receive may fail, over UCX's tcp as well.
    """
    try:
        return run([sys.executable, "-m", "ucxx.benchmarks.send_recv", "-o",
                    "numpy", "--backend", "ucxx-async", "--progress-mode",
                    mode, "--error-handling", "-n", "4MB", "--n-iter", "10",
                    "--no-detailed-report"])
    except AssertionError as error:
        if "UCXXConnectionResetError" not in str(error) or tries == 1:
            raise
        return benchmark(mode, tries - 1)


def send_recv(mode):
    output, rows = benchmark(mode)
    # Ten warm-up rounds and ten that count, 4 MB each way.
    want = 2 * 20 * 4000000
    got = payload_received(rows)
    check(want <= got <= 1.1 * want, f"weft carried {got}, not {want}")
    return re.search(r"Bandwidth \(median\) *\| *(.*)", output).group(0)


@test(70)
def benchmark_in_blocking_progress():
    return send_recv("blocking")


@test(70)
def benchmark_in_thread_progress():
    return send_recv("thread")


def exchange(env=None):
    """Every large message lands in its place, at each end; small ones do not."""
    env = dict(env or {}, UCXPY_PROGRESS_MODE="blocking")
    output, rows = run([sys.executable, EXCHANGE,
                        *map(str, SMALL + LARGE)], env)
    pids = re.search(r"pid (\d+) server (\d+)", output).groups()
    for pid in map(int, pids):
        mine = [row for row in rows if row["pid"] == pid]
        blocks = total(mine, "rx_puts", "gets")
        placed = total(mine, "rx_put_bytes", "get_bytes")
        eager = total(mine, "rx_message_bytes")
        check(blocks >= len(LARGE),
              f"{blocks} puts and gets for {len(LARGE)} messages")
        check(sum(LARGE) <= placed <= sum(LARGE) + sum(SMALL),
              f"{placed} bytes by put and get, not {sum(LARGE)}")
        check(eager < 65536, f"{eager} bytes in messages")
    return rows


@test(70)
def large_messages_are_placed_under_error_handling():
    """By weft_tcp; weft_shm, which weft run prefers, sends them as messages."""
    exchange({"UCX_TLS": "weft_tcp"})


@test(70)
def a_put_scheme_is_followed():
    rows = exchange({"UCX_RNDV_SCHEME": "put_zcopy"})
    check(total(rows, "tx_puts") >= 2 * len(LARGE), "not by put")
    check(total(rows, "gets") == 0, "by get")


@test(70)
def a_closed_endpoint_does_not_overtake_its_last_message():
    """Of UCX's two sockets the one tells of the end, the other has the data."""
    run([sys.executable, f"{HERE}/programs/farewell.py", "50"],
        {"UCXPY_PROGRESS_MODE": "blocking"})


def go_on_beside_a_child(tls):
    """UCX's worker has an epoll set, which a child shares and may empty."""
    for mode in "blocking", "thread":
        try:
            output, _ = run([sys.executable, f"{HERE}/programs/forked.py"],
                            {"UCX_TLS": tls, "UCXPY_PROGRESS_MODE": mode})
        except AssertionError as error:
            if "Fatal: failed to modify" in str(error):
                raise Skip("UCX in the child emptied its parent's epoll set")
            raise
        check("went on" in output, output)


@test(140)
def a_forked_child_that_exits_harms_no_connection_over_tcp():
    go_on_beside_a_child("weft_tcp")


@test(140)
def a_forked_child_that_exits_harms_no_connection_over_shared_memory():
    go_on_beside_a_child("weft_shm,weft_tcp")


def newer_ucx():
    """The folder of a Python package libucx 1.22, fetched for the tests."""
    cache = os.environ.get("WEFT_CACHE", os.path.expanduser("~/.cache/weft"))
    found = sorted(glob.glob(f"{cache}/ucx/1.22*"))
    if not found:
        raise Skip("no UCX 1.22 in the cache: tests/tools/fetch-ucx.sh")
    return found[-1]


@test(70)
def by_plugin_path_in_ucx_1_22():
    """No preload: UCX 1.22 finds the plugin by itself."""
    plugin = os.path.dirname(os.environ["E2E_PLUGIN"])
    output, rows = run(
        [sys.executable, EXCHANGE, *map(str, SMALL + LARGE)],
        {"PYTHONPATH": newer_ucx(), "UCX_PLUGIN_PATH": plugin,
         "UCX_TLS": "weft_tcp", "UCXPY_PROGRESS_MODE": "blocking"},
        weft=False)
    check(payload_received(rows) >= 2 * sum(LARGE), "weft carried nothing")
    check("ucx 1.22." in output, f"another UCX ran:\n{output}")


def suites():
    """
    distributed-ucxx's tests come with its wheel; ucxx's own do not, so they are
    run where WEFT_UCXX_SOURCE names a checkout.
    """
    import distributed_ucxx
    yield f"{os.path.dirname(distributed_ucxx.__file__)}/tests"
    source = os.environ.get("WEFT_UCXX_SOURCE")
    if source:
        yield f"{source}/python/ucxx/ucxx/_lib/tests"
        yield f"{source}/python/ucxx/ucxx/_lib_async/tests"


def pytest(names, weft):
    """(how many passed, the names of those that did not, the rows)"""
    with tempfile.TemporaryDirectory() as folder:
        # files here have names of RAPIDS's
        env = clean_env({"UCXPY_PROGRESS_MODE": "blocking", "PYTHONPATH": "",
                         "WEFT_STATS": f"{folder}/%p.stats"})
        argv = [sys.executable, "-m", "pytest", "-v", "-rfE", "--tb=no",
                "-p", "no:cacheprovider", "--import-mode=append", *names]
        if weft:
            argv = [weft_command(), "run", *argv]
        else:
            env["UCX_TLS"] = "tcp"
        done = subprocess.run(argv, env=env, cwd=folder, text=True,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=1500)
        bad = {os.path.join(folder, name) for name in re.findall(
            r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", done.stdout, re.M)}
        passed = re.search(r"(\d+) passed", done.stdout.splitlines()[-1])
        check(done.returncode in (0, 1), done.stdout[-2000:])
        return (int(passed[1]) if passed else 0,
                {os.path.normpath(name) for name in bad},
                sum(payload_received(read(path)) for path in
                    glob.glob(f"{folder}/*.stats")))


@test(3000, only_long=True)
def tests_of_ucxx_fail_only_where_they_fail_without_weft():
    notes = []
    for suite in suites():
        passed, bad, carried = pytest([suite], weft=True)
        check(passed > 20, f"{passed} passed of {suite}")
        check(carried > 1e5, f"weft carried {carried} bytes of {suite}")
        if bad:
            _, still, _ = pytest(sorted(bad), weft=False)
            check(still == bad, f"under weft alone: {sorted(bad - still)}")
        notes.append(f"{passed} passed, not without weft either: "
                     f"{sorted(name.split('::')[-1] for name in bad)}")
    return "\n".join(notes)


if __name__ == "__main__":
    main()
