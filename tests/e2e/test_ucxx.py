# SPDX-License-Identifier: BSD-3-Clause
"""ucxx alone: its own benchmark, and who carried which message how."""
import glob
import os
import re
import sys

from lib.counters import payload_received, total
from lib.program import run
from lib.tap import Skip, check, main, test

HERE = os.path.dirname(os.path.abspath(__file__))
EXCHANGE = f"{HERE}/programs/exchange.py"

SMALL = [1, 8, 100, 1000, 4096]
LARGE = [65536, 100001, 1 << 20, (8 << 20) + 13, 64 << 20]


def send_recv(mode):
    output, rows = run(
        [sys.executable, "-m", "ucxx.benchmarks.send_recv", "-o", "numpy",
         "--backend", "ucxx-async", "--progress-mode", mode,
         "--error-handling", "-n", "4MB", "--n-iter", "10",
         "--no-detailed-report"])
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
    exchange()


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


if __name__ == "__main__":
    main()
