# SPDX-License-Identifier: BSD-3-Clause
"""
NCCL and CuPy where there is no GPU: the test doubles in tests/e2e/double, which
say what they are.  The network plugin under them is the real one.
"""
import contextlib
import glob
import os
import shlex
import shutil
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DOUBLE = os.path.abspath(f"{HERE}/../double")
ROOT = os.path.abspath(f"{HERE}/../../..")


@contextlib.contextmanager
def environment():
    """Gives the settings under which a program finds the doubles, and weft."""
    plugin = os.environ["E2E_NCCL_PLUGIN"]
    with tempfile.TemporaryDirectory(prefix="weft-e2e.") as folder:
        shutil.copytree(f"{DOUBLE}/include", f"{folder}/include")
        os.mkdir(f"{folder}/lib")
        done = subprocess.run(
            [*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC",
             "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror",
             "-D_GNU_SOURCE", "-fvisibility=hidden", "-I", ROOT,
             "-Wl,-soname,libnccl.so.2", "-o", f"{folder}/lib/libnccl.so.2",
             *sorted(glob.glob(f"{DOUBLE}/*.c")), "-pthread", "-lm"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise AssertionError(f"the double of NCCL:\n{done.stdout}")
        yield {
            "LD_LIBRARY_PATH": f"{folder}/lib:{os.path.dirname(plugin)}",
            "PYTHONPATH": DOUBLE,
            "NCCL_NET_PLUGIN": "weft",
            "NCCL_NET": "weft",
            # A block is to move because a rank needs it, for nothing else.
            "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",
        }
