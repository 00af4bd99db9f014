# SPDX-License-Identifier: BSD-3-Clause
"""
Cases of tests/gpu/nccl/cases.py in which weft introduces pods to each other, or must
not, and NCCL carries by itself.
"""
import glob
import os
import shutil
import subprocess
import tempfile
import time

import job
from carried import CABLE, POD, POD_NET, SOME, Case, Visible

NATIVE = {"NCCL_NET_PLUGIN": "none"}
# Ranks of one GPU need room for each other's kernels, and take turns on it.
SHARED = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "8"}
FIRST_SHARED = 23000
ROOM = 128 << 20  # that weft wants of a common folder for each hidden GPU


class ByPreload(Visible):
    """introduced by the preload: a kernel sees every byte"""
    gpus = 2
    way, want, timeout = "preload", {"P2P"}, 60
    mounted = []  # as a common folder should be: a tmpfs
    shares, sharing = True, {}  # with too few GPUs: several ranks of one

    def settings(self, plugin):
        env = dict(job.known_arms(self.file)[self.way], **self.env)
        if self.way == "plugin":
            env["NCCL_NET_PLUGIN"] = plugin
        return env

    def share(self, a):
        version = job.nccl_version(a.nccl)
        if not self.shares:
            return super().share(a)
        if version < FIRST_SHARED:
            return "%s, which NCCL %d cannot share; --nccl names a 2.30" % (
                super().share(a), version)
        self.sharing, self.timeout = SHARED, max(self.timeout, 150)
        if "visible" in self.opt:
            self.opt = {"visible": SOME}
        return ""

    def start(self, a, env, place=None):
        return super().start(a, {**env, **self.sharing}, place)

    def place(self, rank, folder):
        run = os.path.join(folder, "run")
        os.makedirs(run, exist_ok=True)
        if not os.path.ismount(run):
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", run], check=True)
            self.mounted = self.mounted + [run]
        return [POD, "pod%d" % rank], {"WEFT_RUN_DIR": run}

    def tidy(self):
        super().tidy()
        for run in self.mounted:
            subprocess.run(["umount", "-l", run], check=True)

    def traffic(self, carried):
        return sum(carried.values()) and "weft carried %s" % carried or ""

    def ways(self, run):
        took = {w.split("/")[0] for _, _, w in job.channels(run.log())}
        if took != self.want:
            return "NCCL's log says %s, not %s" % (
                sorted(took) or "nothing", sorted(self.want))
        left = job.left(run.dir)
        return left and "left in the common folder: %s" % left[:5] or ""


class ByPlugin(ByPreload):
    """the same by the net plugin alone"""
    way = "plugin"


class ByEnv(ByPreload):
    """the same by the env plugin"""
    way = "env"


class ByCable(ByPreload):
    """introduced; one pod has a network namespace of its own"""
    env = CABLE

    def place(self, rank, folder):
        pod, env = super().place(rank, folder)
        return POD_NET + (["wgpu"] if rank else ["wait", "wgpu"]) + pod, env


class Together(ByPreload):
    """nothing to introduce: all namespaces shared, preloaded all the same"""

    def place(self, rank, folder):
        return [], super().place(rank, folder)[1]


class Chance(ByPreload):
    """introduced: collectives at random, two ranks"""
    program, opt, timeout = "chance", {"chance": 400, "seed": 30}, 150


class Four(Chance):
    """introduced: collectives at random, four ranks"""
    ranks, gpus, opt = 4, 4, {"chance": 80, "seed": 31}
    way = "plugin"


class Unshared(ByPreload):
    """ranks of one GPU that NCCL is not told of: not introduced, sockets"""
    gpus, opt, want = 1, {"visible": SOME}, {"NET"}

    def skip(self):
        if len(glob.glob("/dev/nvidia[0-9]*")) > 1:
            return "there are several GPUs"
        return ""


class Graphs(ByPreload):
    """introduced: a graph is captured beside traffic"""
    program, opt, way = "graph", {}, "plugin"


class Life(ByPreload):
    script = "rank_life.py"

    @property
    def program(self):
        return type(self).__name__.lower()


class Split(Life):
    """introduced: ncclCommSplit, all in another order, one, some"""


class Shrink(Life):
    """introduced: ncclCommShrink"""
    way = "plugin"


class Grow(Life):
    """introduced: ncclCommGrow from one rank to all"""


class Revoke(Life):
    """introduced: ncclCommRevoke, then a split"""


class Suspend(Life):
    """introduced: ncclCommSuspend and ncclCommResume, three times"""


class Register(Life):
    """introduced: ncclMemAlloc and ncclCommRegister"""


class Window(Life):
    """introduced: symmetric windows"""
    way = "plugin"


class Ddp(ByPreload):
    """introduced: PyTorch trains, DistributedDataParallel"""
    script, program, timeout = "rank_train.py", "train", 100
    shares = False  # torch brings its own NCCL


class Fsdp(ByPreload):
    """introduced: PyTorch trains, fully_shard"""
    script, program, timeout = "rank_train.py", "fsdp", 100
    way, shares = "plugin", False


class Third(ByPreload):
    """two introduced pods; a third rank shares nothing: sockets to it"""
    ranks, timeout, env, want = 3, 90, CABLE, {"P2P", "NET"}
    opt = {"visible": SOME}

    def place(self, rank, folder):
        if rank < 2:
            pod, env = super().place(rank, folder)
            return POD_NET + ["wait", "wgpu"] + pod, env
        pod, env = super().place(rank, os.path.join(folder, "apart"))
        return POD_NET + ["wgpu"] + pod, env

    def ways(self, run):
        for a, b, way in job.channels(run.log()):
            if way.split("/")[0] != ("NET" if 2 in (a, b) else "P2P"):
                return "%d to %d by %s" % (a, b, way)
        return super().ways(run)


class Lone(ByPreload):
    """one rank without weft: sockets, as without weft anywhere"""
    gpus = 1
    opt, want = {"visible": SOME}, {"NET"}

    def place(self, rank, folder):
        pod, env = super().place(rank, folder)
        return pod, dict(env, **({"LD_PRELOAD": ""} if rank else {}))


class OneHidden(ByPreload):
    """one pod lacks the other's device node: not introduced, sockets"""
    opt, want, shares = {"visible": SOME}, {"NET"}, False

    def place(self, rank, folder):
        pod, env = super().place(rank, folder)
        return (["env", "POD_GPU=%d" % rank] if rank else []) + pod, env


class HiddenShm(Chance):
    """each pod has its own GPU's node alone: introduced, shared memory"""
    want, shares = {"SHM"}, False
    peak = 0

    def place(self, rank, folder):
        pod, env = super().place(rank, folder)
        self.run = env["WEFT_RUN_DIR"]
        return ["env", "POD_GPU=%d" % self.gpu(rank)] + pod, env

    def gpu(self, rank):
        return rank

    def beside(self, run):
        while any(p.poll() is None for p in run.procs) and \
                time.time() < run.deadline:
            fs = os.statvfs(self.run)
            self.peak = max(self.peak,
                            (fs.f_blocks - fs.f_bfree) * fs.f_frsize)
            time.sleep(0.05)

    def wrong(self, run):
        said = run.said("and have one GPU each")
        for row in run.rows:
            row["folder_mib"] = self.peak >> 20
        return super().wrong(run) or (
            "%d ranks say that they are introduced" % said
            if said < self.ranks else
            "the common folder had %d MiB" % (self.peak >> 20)
            if self.peak > ROOM * self.gpus else "")


class HiddenEnv(HiddenShm):
    """the same by the env plugin"""
    way = "env"


class HiddenBoth(HiddenShm):
    """the same by the preload, beside the net plugin"""

    def settings(self, plugin):
        return dict(super().settings(plugin), NCCL_NET_PLUGIN=plugin)


class HiddenTold(HiddenShm):
    """the same by the net plugin alone, NCCL_CUMEM_HOST_ENABLE=0 set"""
    way, env = "plugin", {"NCCL_CUMEM_HOST_ENABLE": "0"}


class HiddenFour(HiddenShm):
    """two ranks on each of two hidden GPUs: P2P within one, shared memory"""
    ranks, want = 4, {"P2P", "SHM"}
    opt = {"chance": 80, "seed": 32}
    sharing, first = SHARED, FIRST_SHARED

    def gpu(self, rank):
        return rank // 2


class AllHidden(ByPreload):
    """no pod has the other's device node, the plugin alone: weft's TCP"""
    opt, want, way = {"visible": SOME}, {"NET"}, "plugin"
    shares = False

    def place(self, rank, folder):
        pod, env = super().place(rank, folder)
        return ["env", "POD_GPU=%d" % rank] + pod, env

    def traffic(self, carried):
        return Case.traffic(self, carried)


class InMps(ByPreload):
    """clients of MPS, preloaded: what they do without weft"""
    gpus = 1
    opt = {"visible": SOME}
    control = "nvidia-cuda-mps-control"

    def skip(self):
        return "" if shutil.which(self.control) else "no " + self.control

    def place(self, rank, folder):
        prefix, env = super().place(rank, folder)
        return [], dict(env, **self.daemon)

    def carry_out(self, a, plugin):
        folder = tempfile.mkdtemp(prefix="weft-mps-")
        self.daemon = {"CUDA_MPS_PIPE_DIRECTORY": folder,
                       "CUDA_MPS_LOG_DIRECTORY": folder}
        env = dict(os.environ, **self.daemon)
        subprocess.run([self.control, "-d"], env=env, check=True)
        try:
            native = self.start(a, NATIVE)
            run = self.start(a, self.settings(plugin))
        finally:
            subprocess.run([self.control], env=env, input="quit\n",
                           text=True, timeout=30)
        self.want = {w.split("/")[0]
                     for _, _, w in job.channels(native.log())}
        if any(native.codes):
            return run, "" if any(run.codes) else "without weft: exit %s" % \
                native.codes
        return run, self.wrong(run)


class Killed(ByPreload):
    """A rank dies; then the next two in the same folder find it clean."""
    script, program, timeout = "rank_life.py", "killed", 45
    folder = None

    def place(self, rank, folder):
        return super().place(rank, self.folder or folder)

    def survivor(self, run):
        """What the survivor tells, without figures."""
        rows = [r for r in run.rows if "case" in r]
        return [{k: r.get(k) for k in ("bad", "told", "ended")} for r in rows]

    def carry_out(self, a, plugin):
        env = self.settings(plugin)
        bare = self.start(a, NATIVE, job.Here()) if self.compared else None
        self.folder = tempfile.mkdtemp(prefix="weft-gpu-")
        run = self.start(a, env)
        told = self.survivor(run)
        if len(told) != self.ranks - 1:
            return run, "no survivor: exit %s\n%s" % (run.codes,
                                                      run.complaint())
        if bare and told != self.survivor(bare):
            return run, "%s; without weft %s" % (told, self.survivor(bare))
        # a socket is not taken for a dead one's while it may be being made
        time.sleep(3)
        self.script, self.program = ByPreload.script, ByPreload.program
        self.opt = {"visible": SOME}
        after = self.start(a, env)
        bad = self.wrong(after)
        left = job.left(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        after.rows += run.rows
        return after, bad or left and "left in the folder: %s" % left[:5]


class KillStart(Killed):
    """introduced: a rank dies while the communicator is made"""
    opt, compared = {"when": "start", "after": 0.25}, False


class KillTraffic(Killed):
    """introduced: a rank dies in traffic: as without weft, nothing is left"""
    opt, compared = {"when": "traffic"}, True


class KillEnd(Killed):
    """introduced: a rank dies at the end: as without weft, nothing is left"""
    opt, compared = {"when": "end"}, True


INTRODUCED = {c.__name__.lower(): c for c in
              (ByPreload, ByPlugin, ByEnv, ByCable, Together, Chance, Four,
               Unshared, Graphs, Split,
               Shrink, Grow, Revoke, Suspend, Register, Window, Ddp, Fsdp,
               Third, Lone, OneHidden, AllHidden, HiddenShm, HiddenEnv,
               HiddenBoth, HiddenTold, HiddenFour, InMps, KillStart,
               KillTraffic, KillEnd)}
