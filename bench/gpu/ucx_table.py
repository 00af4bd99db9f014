# SPDX-License-Identifier: BSD-3-Clause
"""Prints what ucx_pods.sh measured: python3 ucx_table.py FILE."""
import json
import sys

TARGETS = {  # (what, bytes): (value, is a limit from above)
    ("latency", 8): (9.1, True),
    ("latency", 8192): (9.1, True),
    ("bandwidth", 1 << 20): (100, False),
    ("bandwidth", 64 << 20): (300, False),
    ("bandwidth", 1 << 30): (300, False),
    ("first transfer of fresh buffers", 1 << 30): (250, False),
}


def size(n):
    for unit, one in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if n >= one:
            return f"{n // one} {unit}"
    return f"{n} B"


def main():
    with open(sys.argv[1]) as lines:
        rows = [json.loads(line) for line in lines]
    arms = list(dict.fromkeys((r["arm"], r["ucx"]) for r in rows))
    keys = sorted({(r["what"], r["bytes"], r["unit"]) for r in rows},
                  key=lambda key: (key[0] != "latency", key[0], key[1]))
    head = "".join(f"{f'{arm} {ucx}':>18}" for arm, ucx in arms)
    print(f"{'the best round':44}{head}")
    for what, count, unit in keys:
        line = f"{f'{what}, {size(count)}, {unit}':44}"
        for arm in arms:
            values = [r["value"] for r in rows
                      if (r["arm"], r["ucx"]) == arm
                      and (r["what"], r["bytes"]) == (what, count)]
            if values:
                best = min(values) if unit == "us" else max(values)
                line += f"{best:18.2f}"
            else:
                line += f"{'-':>18}"
        if (what, count) in TARGETS:
            value, below = TARGETS[what, count]
            line += f"   weft: {'at most' if below else 'at least'} {value}"
        print(line)


if __name__ == "__main__":
    main()
