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
import sys
import sysconfig
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
DOUBLE = os.path.abspath(f"{HERE}/../double")
ROOT = os.path.abspath(f"{HERE}/../../..")
EXAMPLES = f"{ROOT}/examples"
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


def compiled(*options):
    done = subprocess.run(
        [*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC", "-O2",
         *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise AssertionError(f"{options}:\n{done.stdout}")


def build_double(folder):
    shutil.copytree(f"{DOUBLE}/include", f"{folder}/include")
    os.mkdir(f"{folder}/lib")
    compiled("-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-parameter",
             "-Werror", "-D_GNU_SOURCE",
             "-fvisibility=hidden", "-I", ROOT, "-Wl,-soname,libnccl.so.2",
             "-o", f"{folder}/lib/libnccl.so.2",
             *sorted(glob.glob(f"{DOUBLE}/*.c")), "-pthread", "-lm")


def install_binding(folder):
    """
    The C function of the examples as a library in @folder/lib, and its binding
    by Cython in @folder/python, which PYTHONPATH must have.
    """
    lib, python = f"{folder}/lib", f"{folder}/python"
    os.mkdir(python)
    compiled(f"{EXAMPLES}/nccl_moments.c", f"{lib}/libnccl.so.2",
             "-o", f"{lib}/libclique_moments.so")
    subprocess.run([sys.executable, "-m", "cython", "-o",
                    f"{python}/nccl_moments.c",
                    f"{EXAMPLES}/nccl_moments.pyx"], check=True)
    compiled(f"{python}/nccl_moments.c",
             "-I", sysconfig.get_path("include"), "-L", lib,
             "-lclique_moments", "-o", f"{python}/nccl_moments"
             f"{sysconfig.get_config_var('EXT_SUFFIX')}")
    return python


@contextlib.contextmanager
def environment():
    """Without a GPU all libraries lie where conda has them."""
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
            os.symlink(plugin, f"{folder}/lib/libnccl-net-weft.so")
            env.update({
                "NCCL_NET_PLUGIN": "weft", "CONDA_PREFIX": folder,
                "PYTHONPATH": f"{DOUBLE}:{os.environ['PYTHONPATH']}",
                "LD_LIBRARY_PATH": f"{folder}/lib"})
        yield env
