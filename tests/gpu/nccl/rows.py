# SPDX-License-Identifier: BSD-3-Clause
"""What all rank programs share: their options, and lines for the parent."""
import json
import os
import sys

OPS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv",
       "all_to_all"]


def options():
    return json.loads(os.environ["WEFT_TEST_GPU"])


def report(**row):
    """One result, as a line that the parent takes."""
    print("ROW " + json.dumps(row))
    sys.stdout.flush()
