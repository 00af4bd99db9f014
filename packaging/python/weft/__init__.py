# SPDX-License-Identifier: BSD-3-Clause
"""
weft's files in this Python environment, by the variable that takes each.

Where a UCX is loaded in this process already, as after "import ucxx", importing
this module registers weft's transports with it; UCX takes them if UCX_TLS or
Dask's settings name them, and if it is not initialised yet.  Otherwise nothing
is done.  "weft run" does more: it chooses the transports, and it is for Dask.
"""
import ctypes
import os
import re
import signal
import sys

_folder = os.path.dirname(os.path.abspath(__file__))
paths = {
    "PATH": os.path.join(_folder, "bin"),
    "LD_PRELOAD": os.path.join(_folder, "lib", "libweft_preload.so"),
    "UCX_PLUGIN_PATH": os.path.join(_folder, "lib", "ucx"),
    "NCCL_NET_PLUGIN": os.path.join(_folder, "lib", "libnccl-net-weft.so"),
    "NCCL_ENV_PLUGIN": os.path.join(_folder, "lib", "libnccl-env-weft.so"),
}


def nccl_plugin_path():
    """For os.environ["NCCL_NET_PLUGIN"], before NCCL's first communicator."""
    return paths["NCCL_NET_PLUGIN"]


def command():
    """Becomes the command weft."""
    weft = os.path.join(paths["PATH"], "weft")
    # Python ignores them, and so would the programs that "weft run" starts
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.execv(weft, [weft] + sys.argv[1:])


def _register():
    """Does for each UCX in this process what libweft_preload.so does."""
    with open("/proc/self/maps") as maps:
        loaded = set(re.findall(r" (/.*/libuct[-.].*)$", maps.read(), re.M))
    for path in sorted(loaded):
        uct = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        plugin = ctypes.CDLL(
            os.path.join(paths["UCX_PLUGIN_PATH"], "libuct_weft.so"))
        plugin.weft_uct_environment()
        plugin.weft_uct_load(
            ctypes.cast(uct.uct_query_components, ctypes.c_void_p))


_register()
