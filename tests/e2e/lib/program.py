# SPDX-License-Identifier: BSD-3-Clause
"""One program under `weft run`, with its output and its counters."""
import json
import os
import subprocess
import tempfile

from . import counters
from .cluster import own_environ, weft_command


def clean_env(extra=None):
    env = own_environ()
    env["UCX_WARN_UNUSED_ENV_VARS"] = "n"
    env.update(extra or {})
    return env


def last_json(output):
    """A program's result; libraries may print before and after it."""
    return json.loads([line for line in output.splitlines()
                       if line.startswith("{")][-1])


def run(argv, env=None, seconds=60, weft=True, host=None):
    """Returns (its output, the rows of it and its children)."""
    with tempfile.TemporaryDirectory(prefix="weft-e2e.") as folder:
        full = clean_env(env)
        full["WEFT_STATS"] = f"{folder}/program.%p.stats"
        if weft:
            argv = [weft_command(), "run", *argv]
        if host:
            argv = host.command(argv)
        try:
            done = subprocess.run(argv, env=full, timeout=seconds,
                                  stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
        except subprocess.TimeoutExpired as late:
            raise AssertionError(f"{argv} hangs:\n{late.stdout}") from late
        if done.returncode:
            raise AssertionError(f"{argv} failed ({done.returncode}):\n"
                                 f"{done.stdout}")
        return done.stdout, counters.read_dir(folder)
