# SPDX-License-Identifier: BSD-3-Clause
"""
ucxx in the emulated machine: weft_ib carries, weft_tcp next to nothing.
Emulated processors say nothing about speed, and deadlines are long.
"""
import sys

from lib.counters import total
from lib.program import run
from lib.tap import check, main, test

# As Dask's documentation has it: the adapter, and Dask's --interface names its
# interface.
IB = {"UCX_TLS": "weft_ib,weft_tcp", "UCX_NET_DEVICES": "rxe0:1",
      "UCX_WARN_UNUSED_ENV_VARS": "n"}
PATIENCE = 400


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
