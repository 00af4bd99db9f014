# SPDX-License-Identifier: BSD-3-Clause
"""
Dask and ucxx in the emulated machine: weft_ib carries, weft_tcp next to
nothing. Emulated processors say nothing about speed, and deadlines are long.
"""
import json
import os
import sys
import tempfile

from lib.counters import read_dir, total
from lib.program import run
from lib.tap import check, main, test

# As Dask's documentation has it: the adapter, and Dask's --interface names its
# interface.
IB = {"UCX_TLS": "weft_ib,weft_tcp", "UCX_NET_DEVICES": "rxe0:1",
      "UCX_WARN_UNUSED_ENV_VARS": "n"}
PATIENCE = 400
# Four processes on two processors: ucxx looks again and again when nothing is
# there, and the others want to get on.
PATIENT = {"WEFT_UCX_IDLE_WAIT": "10000", "WEFT_CONNECT_TIMEOUT": "300s"}
MTU = 4096


def carried(rows):
    """
    Bytes of the callers that left these processes by the adapter, or were
    fetched by it: of a WRITE or a READ the other side's counters know nothing.
    """
    return total([row for row in rows if row["weft"] == "ib"],
                 "tx_message_bytes", "tx_put_bytes", "get_bytes")


def by_tcp(rows):
    """Queue pairs are exchanged there, and UCX connects endpoints."""
    return total([row for row in rows if row["weft"] == "tcp"],
                 "wire_tx_bytes")


def within(got, low, high, what):
    check(low <= got <= high, f"{what}: {got} is not in {low} to {high}")


def judge(rows, moved, processes):
    check({row["weft"] for row in rows} <= {"ib", "tcp"}, "some other device")
    got = carried(rows)
    within(got, moved, 1.2 * moved, "bytes that weft_ib carried")
    sockets = by_tcp(rows)
    within(sockets, 1, 65536 * processes, "bytes that went by sockets")
    return f"{moved} bytes, by weft_ib {got}, by sockets {sockets}"


def seen_outside():
    """Packets that the adapter says it sent, bytes that the sockets did."""
    sockets = 0
    for name in "lo", "veth0", "veth1":
        with open(f"/sys/class/net/{name}/statistics/tx_bytes") as file:
            sockets += int(file.read())
    with open("/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts") as \
            file:
        return int(file.read()), sockets


@test(900)
def transpose():
    with tempfile.TemporaryDirectory(prefix="weft-e2e.") as folder:
        before = seen_outside()
        output, _ = run(
            [sys.executable, f"{os.path.dirname(__file__)}/transpose.py",
             folder, "veth0"], {**IB, **PATIENT}, seconds=880)
        packets, sockets = (now - then for now, then in
                            zip(seen_outside(), before))
        rows = [row for row in read_dir(folder)
                if row["process"].startswith("worker")]
    moved = json.loads([line for line in output.splitlines()
                        if line.startswith("{")][-1])["total"]
    check(moved >= 4000000, f"Dask moved {moved} bytes only")
    check({row["process"] for row in rows} == {"worker1", "worker2"},
          "a worker left no counters")
    note = judge(rows, moved, 2)
    # nothing of it twice: a packet has MTU bytes at most, each may be answered
    within(packets, moved // MTU, 3 * moved // MTU + 10000, "packets of rxe0")
    within(sockets, 1, moved // 4, "bytes that sockets sent")
    return f"{note}, {packets} packets of rxe0, {sockets} bytes of sockets"


@test(PATIENCE)
def ucxx_benchmark():
    size, rounds = 1000000, 5
    _, rows = run(
        [sys.executable, "-m", "ucxx.benchmarks.send_recv", "-o", "numpy",
         "--backend", "ucxx-async", "--progress-mode", "blocking",
         "--error-handling", "-n", str(size), "--n-iter", str(rounds),
         "--n-warmup-iter", str(rounds), "--no-detailed-report"],
        {**IB, "UCXPY_IFNAME": "veth0"}, seconds=PATIENCE - 20)
    return judge(rows, 2 * 2 * rounds * size, 2)


@test(PATIENCE)
def an_interface_of_another_adapter_is_told():
    """The addresses are those of rxe1's interface, the adapter is rxe0."""
    output, _ = run(
        [sys.executable, "-c", "import ucxx; ucxx.init(); "
         "ucxx.get_ucx_version()"],
        {**IB, "UCXPY_IFNAME": "veth1"}, seconds=PATIENCE - 20)
    told = [line for line in output.splitlines() if "UCXPY_IFNAME" in line]
    check(len(told) == 1 and "of rxe1:1" in told[0],
          f"not one line that names rxe1:\n{output}")


if __name__ == "__main__":
    main()
