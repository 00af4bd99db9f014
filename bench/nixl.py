# SPDX-License-Identifier: BSD-3-Clause
"""
NIXL between two pods of this machine: requests of 10,000 blocks of each size and
of one large block, over weft_tcp and over UCX's tcp in turn, the best of each.

usage: nixl.py [ROUNDS]     in a build folder, as root, by the tests' Python
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
os.environ.setdefault("E2E_WEFT", os.path.abspath("tools/weft"))
sys.path.insert(0, f"{HERE}/../tests/e2e")

from test_nixl import Pair  # noqa: E402

JOBS = [f"10000:{size}k" for size in (1, 4, 16, 45, 64)] + ["1:1g"]
ARMS = {"tcp": {"weft": False, "env": {"UCX_TLS": "tcp"}},
        "weft_tcp": {"env": {"UCX_TLS": "weft_tcp"}}}


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    best = {}
    for number in range(rounds):
        for arm in list(ARMS)[::1 - 2 * (number % 2)]:
            try:
                pair = Pair(JOBS, seconds=600, **ARMS[arm])
            except AssertionError as error:
                print(f"round {number}, {arm}: {error}", file=sys.stderr)
                continue
            for word, job, size, took in re.findall(
                    r"^(WRITE|READ) (\S+) (\d+) (\S+)$",
                    pair.said["initiator"], re.M):
                rate = int(size) / float(took) / 1e6
                key = word, job, arm
                best[key] = max(best.get(key, 0), rate)
    print("| request | " + " | ".join(f"{arm}, MB/s" for arm in ARMS) + " |")
    print("|---|" + "---|" * len(ARMS))
    for word in ("WRITE", "READ"):
        for job in JOBS:
            print(f"| {word} {job} | " + " | ".join(
                f"{best[word, job, arm]:.0f}" for arm in ARMS) + " |")


if __name__ == "__main__":
    main()
