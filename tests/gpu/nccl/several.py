# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that share a pod: several.py COUNT COMMAND..., from $RANK on."""
import os
import subprocess
import sys

count, first = int(sys.argv[1]), int(os.environ["RANK"])
procs = []
for rank in range(first, first + count):
    env = dict(os.environ, RANK=str(rank))
    for name in ("WEFT_STATS", "NCCL_DEBUG_FILE"):
        env[name] = os.environ[name].rsplit(".", 1)[0] + ".%d" % rank
    procs.append(subprocess.Popen(sys.argv[2:], env=env))
sys.exit(max(abs(p.wait()) for p in procs))
