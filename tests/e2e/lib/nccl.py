# SPDX-License-Identifier: BSD-3-Clause
"""
What a program needs to find NCCL, CuPy and weft's network plugin.

With E2E_GPU=1 NCCL and CuPy are the machine's own, and the ranks, all on one
host, are kept from each other's memory as if they were not.  Otherwise they are
the test doubles in tests/e2e/double, which say what they are.
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
GPU = os.environ.get("E2E_GPU") == "1"


def unloads():
    """
    Whether the plugin goes with the last communicator, to be loaded again for
    the next.  NCCL 2.28 and 2.29 forget its name over that (NVIDIA/nccl issue
    1978): there it stays, as under `weft run`.
    """
    if not GPU:
        return True
    from cupy.cuda import nccl
    return nccl.get_version() >= 23000


def build_double(folder):
    shutil.copytree(f"{DOUBLE}/include", f"{folder}/include")
    os.mkdir(f"{folder}/lib")
    done = subprocess.run(
        [*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC", "-O2",
         "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE",
         "-fvisibility=hidden", "-I", ROOT, "-Wl,-soname,libnccl.so.2",
         "-o", f"{folder}/lib/libnccl.so.2",
         *sorted(glob.glob(f"{DOUBLE}/*.c")), "-pthread", "-lm"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise AssertionError(f"the double of NCCL:\n{done.stdout}")


@contextlib.contextmanager
def environment():
    plugin = os.environ["E2E_NCCL_PLUGIN"]
    # A block is to move because a rank needs it, for nothing else.
    env = {"NCCL_NET": "weft",
           "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False"}
    with tempfile.TemporaryDirectory(prefix="weft-e2e.") as folder:
        if GPU:
            env.update({
                "NCCL_NET_PLUGIN": plugin,
                "NCCL_NET_PLUGIN_REF_COUNT": "0" if unloads() else "1",
                "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1",
                "NCCL_NVLS_ENABLE": "0", "NCCL_DEBUG": "WARN"})
        else:
            build_double(folder)
            env.update({
                "NCCL_NET_PLUGIN": "weft",
                "PYTHONPATH": f"{DOUBLE}:{os.environ['PYTHONPATH']}",
                "LD_LIBRARY_PATH":
                f"{folder}/lib:{os.path.dirname(plugin)}"})
        yield env
