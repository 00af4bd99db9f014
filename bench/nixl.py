# SPDX-License-Identifier: BSD-3-Clause
"""
NIXL between two pods of this machine: requests of 10,000 blocks of each size and
of one large block, each arm in turn, the best of each.

usage: nixl.py [ROUNDS [ARM...]]    in a build folder, as root, by the tests'
        Python: host memory, over weft_tcp, weft_shm and UCX's tcp

With E2E_POD, memory of GPUs: gpu/nixl.sh; or, with NIXL_MEMORY=host, of the host, in
pods on this network.  NIXL_SECONDS: after so many, no round is begun.  What each run
took is in $OUT/nixl.json.
"""
import contextlib
import os
import re
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ.setdefault("E2E_WEFT", os.path.abspath("tools/weft"))
sys.path[:0] = [f"{HERE}/../tests/e2e", HERE]

from lib.tap import check  # noqa: E402
from report import Report  # noqa: E402
from test_nixl import POD, Pair, gpus  # noqa: E402

JOBS = [f"10000:{size}k" for size in (1, 4, 16, 45, 64)] + ["1:1g"]
DEVICES = {"weft_tcp": "tcp", "weft_shm": "shm", "weft_nvl": "nvlink",
           "cuMemCreate": "nvlink", "host": "shm"}
FIRST = "1000:mix"  # makes the connections, and is not counted
NET = [[POD, "-n", "a"], [POD, "-n", "b"]]  # on this network
SHARED = [["env"], ["env"]]


def arms(on_gpus, folder):
    if not on_gpus:
        tls = {"tcp": "tcp", "weft_tcp": "weft_tcp",
               "weft_shm": "weft_shm,weft_tcp"}
        # where there is a GPU, NIXL refuses to go without
        gpu = ",cuda_copy" if POD else ""
        # the two pods have no folder in common but this
        shared = {"weft_shm": {"WEFT_RUN_DIR": folder}}
        return {name: {"weft": name != "tcp", "places": POD and NET,
                       "env": {"UCX_TLS": tls[name] + gpu,
                               **shared.get(name, {})}} for name in tls}

    def arm(tls, weft=False, **places):
        # cuda_ipc has no get where it finds no NVLink, unless asked for it
        return {**on_gpus, "weft": weft, **places,
                "env": {**on_gpus["env"], "UCX_TLS": tls,
                        "UCX_CUDA_IPC_ENABLE_GET_ZCOPY": "on"}}
    return {"cuda_ipc": arm("cuda_ipc,cuda_copy,sm,tcp,self", places=SHARED),
            "weft_nvl": {**on_gpus, "weft": True},
            "cuMemCreate": {**on_gpus, "env": {**on_gpus["env"],
                                               "KV_MEMORY": "mappable"}},
            # through host memory, as where device nodes are hidden
            "host": arm("weft_shm,weft_tcp,cuda_copy", True),
            "weft_tcp": arm("weft_tcp,cuda_copy", True, places=NET),
            "tcp": arm("tcp,cuda_copy,self", places=NET)}


def in_messages(pair):
    moved = pair.moved()
    for role, want in ("initiator", moved["WRITE"]), ("target", moved["READ"]):
        sent = pair.total(role, "tx_message_bytes")
        check(want <= sent <= 1.1 * want + 65536,
              f"{role}: {sent} bytes in messages for {want}")


def measure(arm, how):
    """((request, its blocks), arm, GB/s), ... of one run."""
    pair = Pair([FIRST, *JOBS], seconds=200, **how)
    if arm == "weft_tcp" and "KV_MEMORY" in how["env"]:
        in_messages(pair)  # UCX has no put of GPU memory over a network
    elif how.get("weft", True):
        pair.carried_by(DEVICES[arm])
    found = re.findall(r"^(WRITE|READ) (\S+) (\d+) (\S+)$",
                       pair.said["initiator"], re.M)
    return [((word, job), arm, int(size) / float(took) / 1e9)
            for word, job, size, took in found if job != FIRST]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    end = time.monotonic() + int(os.environ.get("NIXL_SECONDS", "3600"))
    rows, failed = [], False
    on_host = not POD or os.environ.get("NIXL_MEMORY") == "host"
    with contextlib.nullcontext() if on_host else gpus() as on_gpus, \
            tempfile.TemporaryDirectory(prefix="weft-nixl.") as folder:
        all_arms = arms(on_gpus, folder)
        chosen = sys.argv[2:] or list(all_arms)
        for number in range(rounds):
            for arm in chosen[::1 - 2 * (number % 2)]:
                if time.monotonic() > end:
                    continue
                try:
                    rows += measure(arm, all_arms[arm])
                except AssertionError as error:
                    failed = True
                    print(f"round {number}, {arm}: {error}", file=sys.stderr)
    told = Report(f"{os.environ.get('OUT', '.')}/nixl.json")
    for word in "WRITE", "READ":
        for job in JOBS:
            count, size = job.split(":")
            told.row("nixl", "host" if on_host else "GPU",
                     f"{word} {int(count):,}", int(size[:-1]) <<
                     {"k": 10, "g": 30}[size[-1]], "GB/s",
                     {arm: [rate for request, name, rate in rows
                            if (request, name) == ((word, job), arm)]
                      for arm in chosen})
    sys.exit(failed)


if __name__ == "__main__":
    main()
