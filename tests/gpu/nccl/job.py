# SPDX-License-Identifier: BSD-3-Clause
"""Starts the ranks of a job, each in a pod or here, and reads what came of it."""
import atexit
import ctypes
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
APART = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
COMMON = {
    "NCCL_NVLS_ENABLE": "0", "NCCL_IB_DISABLE": "1",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1",
    "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV",
}
POD = os.path.join(HERE, "..", "pod.sh")
POD_NET = [sys.executable, os.path.join(HERE, "pod_net.py")]
CHANNEL = re.compile(r"Channel \d+(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\] "
                     r"(?:\[\w+\] )?via (\w+(?:/\w+)?)")


class Place:
    """Where ranks run: here, without the ways between processes of one host."""
    opt = {}

    def place(self, rank, folder):
        """What to run the rank under, and its environment."""
        return [], APART

    def beside(self, run):
        """What happens meanwhile."""

    def tidy(self):
        """After the end."""


class Job:
    """The ranks of one job; a hang costs its timeout, no more."""

    def __init__(self, program, env, opt, ranks, timeout, place=None, each=1):
        """
        @program: of this folder, or a path; @place: a Place; @each: so many
        ranks beside each other in one.
        """
        self.dir = tempfile.mkdtemp(prefix="weft-gpu-")
        self.place = place or Place()
        opt = dict(opt, rendezvous=os.path.join(self.dir, "meet"),
                   timeout=timeout)
        self.rows, self.errors, self.procs = [], [], []
        self.deadline = time.time() + timeout
        for rank in range(0, ranks, each):
            e = dict(os.environ, **COMMON)
            e.pop("LD_PRELOAD", None)
            e["PYTHONPATH"] = HERE + os.pathsep + e.get("PYTHONPATH", "")
            e.update({k: v.replace("{rank}", str(rank))
                      for k, v in env.items()})
            prefix, more = self.place.place(rank, self.dir)
            e.update(more)
            # for python alone: a timer that outlives exec would kill
            preload = ["env", "LD_PRELOAD=" + e.pop("LD_PRELOAD")] \
                if "LD_PRELOAD" in e else []
            command = preload + [sys.executable,
                                 os.path.join(HERE, program)]
            if each > 1:
                command = [sys.executable, os.path.join(HERE, "several.py"),
                           str(each)] + command
            e.update(RANK=str(rank), WORLD_SIZE=str(ranks),
                     WEFT_TEST_GPU=json.dumps(dict(opt, **self.place.opt)),
                     WEFT_STATS=os.path.join(self.dir, "stats.%d" % rank),
                     NCCL_DEBUG_FILE=os.path.join(self.dir,
                                                  "nccl.%d" % rank))
            self.procs.append(subprocess.Popen(
                prefix + command, env=e, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True))
        self.readers = [threading.Thread(target=self.read, args=(p,))
                        for p in self.procs]
        for t in self.readers:
            t.start()

    def end(self):
        """Waits for all; their exit codes are in .codes."""
        self.place.beside(self)
        self.codes = [self.wait(p) for p in self.procs]
        for t in self.readers:
            t.join()
        return self

    def read(self, proc):
        for line in proc.stdout:
            if line.startswith("ROW "):
                self.rows.append(json.loads(line[4:]))
            elif line.strip():
                self.errors.append(line.rstrip())

    def wait(self, proc):
        try:
            return proc.wait(max(self.deadline - time.time(), 0.1))
        except subprocess.TimeoutExpired:
            proc.kill()
            proc.wait()
            return "no end after its timeout"

    def log(self):
        text = ""
        for path in sorted(glob.glob(os.path.join(self.dir, "nccl.*"))):
            with open(path, errors="replace") as f:
                text += f.read()
        return text

    def said(self, words):
        """How often ranks say so: in NCCL's log, or before it has one."""
        return self.log().count(words) + \
            sum(words in line for line in self.errors)

    def network(self):
        """Which network NCCL says it used."""
        names = {line.split("Using network ")[1].split()[0]
                 for line in self.log().splitlines()
                 if "Using network " in line}
        return "+".join(sorted(names)) or "?"

    def tuned(self):
        """Whether weft raised the channels, and whether it is the tuner."""
        text = self.log()
        return ("NCCL_MIN_NCHANNELS is now" in text,
                re.search("TUNER/Plugin: Using (tuner plugin )?weft", text)
                is not None)

    def carried(self):
        """Bytes that weft's counters saw, by device."""
        total = {}
        for path in glob.glob(os.path.join(self.dir, "stats.*")):
            with open(path, errors="replace") as f:
                for line in f:
                    try:
                        row = json.loads(line)
                    except ValueError:
                        continue
                    total[row["weft"]] = total.get(row["weft"], 0) + \
                        row["tx_put_bytes"] + row["tx_message_bytes"]
        return total

    def complaint(self):
        warn = [x for x in self.log().splitlines() if " WARN " in x]
        return "\n".join((self.errors + warn)[-12:])


class Here(Place):
    """All namespaces shared."""

    def place(self, rank, folder):
        return [], {}


def find(plugin, name, *folders):
    """What is installed beside the plugin, or in the build tree's @folders."""
    build = os.path.join(os.path.dirname(plugin), "..", "..")
    places = [os.path.dirname(plugin)] + [os.path.join(build, f)
                                          for f in folders]
    return next((path for path in (os.path.join(p, name) for p in places)
                 if os.path.exists(path)), None)


def together(plugin):
    """The plugin as installed: its companions look for it beside them."""
    folder = tempfile.mkdtemp(prefix="weft-lib-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in (os.path.basename(plugin), "libnccl-env-weft.so",
                 "libweft_preload.so"):
        there = find(plugin, name, "ucx_tl/.libs")
        if not there:
            sys.exit("no %s beside %s" % (name, plugin))
        shutil.copy(there, folder)
    return os.path.join(folder, os.path.basename(plugin))


# NCCL's own, as they come and tuned by hand: the best is what weft is measured by.
SOCKET = {"NCCL_NET_PLUGIN": "none", "NCCL_NET": "Socket"}
SOCKETS = {
    "socket": SOCKET,
    "socket-4x4": {**SOCKET, "NCCL_SOCKET_NTHREADS": "4",
                   "NCCL_NSOCKS_PERTHREAD": "4"},
    "socket-16": {**SOCKET, "NCCL_SOCKET_NTHREADS": "16",
                  "NCCL_NSOCKS_PERTHREAD": "1", "NCCL_MIN_NCHANNELS": "8"},
}


def known_arms(plugin):
    """
    Settings of each, for a plugin of together()'s; with POD=no it runs in the
    namespaces that are here.
    """
    folder = os.path.dirname(plugin)
    return {
        "native": {"POD": "no", "NCCL_NET_PLUGIN": "none"},
        "preload": {"NCCL_NET_PLUGIN": "none",
                    "LD_PRELOAD": os.path.join(folder, "libweft_preload.so")},
        "plugin": {"NCCL_NET_PLUGIN": plugin},
        "env": {"NCCL_NET_PLUGIN": "none", "NCCL_ENV_PLUGIN":
                os.path.join(folder, "libnccl-env-weft.so")},
        "carried": {"NCCL_NET_PLUGIN": plugin, "NCCL_NET": "weft",
                    "WEFT_NCCL_INTRODUCE": "off"},
        **SOCKETS,
    }


def channels(log):
    """(from, to, way) of the ranks that NCCL has connected, as it says."""
    return [(int(a), int(b), way) for a, b, way in CHANNEL.findall(log)]


def left(run):
    """What is NCCL's in the common folder and was not removed."""
    return [f for _, _, files in os.walk(os.path.join(run, "run"))
            for f in files if f.startswith(("n-", "nccl-", "t-"))]


def nccl_version(path):
    """As ncclGetVersion() has it: 23007."""
    version = ctypes.c_int()
    ctypes.CDLL(path).ncclGetVersion(ctypes.byref(version))
    return version.value


def torch_nccl():
    """The libnccl.so.2 that torch brings."""
    try:
        import nvidia.nccl
        return glob.glob(os.path.join(list(nvidia.nccl.__path__)[0], "lib",
                                      "libnccl.so.2"))[0]
    except (ImportError, IndexError):
        return "libnccl.so.2"
