# SPDX-License-Identifier: BSD-3-Clause
"""
Cases of tests/gpu/nccl/cases.py in which weft's TCP carries.
"""
import os
import time

import job
import pod_net

POD, POD_NET = job.POD, job.POD_NET
WEFT = {"NCCL_NET": "weft", "NCCL_RAS_ENABLE": "0",
        "WEFT_NCCL_INTRODUCE": "off"}
# A cable between the host's network and the last rank's
CABLE = {"NCCL_SOCKET_IFNAME": "=wgpu0,wgpu1", "NCCL_SOCKET_FAMILY": "AF_INET"}
MANY = [[8, 1000], [4100, 1000], [65540, 1000], [(1 << 20) + 4, 600],
        [8 << 20, 200], [64 << 20, 40]]
SOME = [[8, 20], [65540, 20], [(1 << 20) + 4, 10], [8 << 20, 5]]


class Case(job.Place):
    """How the ranks are placed, and what is wrong with what came of it."""
    ranks, timeout, program, env = 2, 60, "visible", {}
    script = "rank_cases.py"
    first = 0  # release of NCCL
    gpus = 1  # that it needs: with one alone, all ranks are clients of MPS

    def skip(self):
        """Why it cannot be tried here, or nothing."""

    def share(self, a):
        """
        There are fewer GPUs than it needs: several ranks have one, or why not.
        """
        return "there %s" % ("is one GPU" if a.gpus == 1 else
                             "are %d GPUs" % a.gpus)

    def plugins(self, path):
        """NCCL_NET_PLUGIN, where weft's plugin is @path."""
        return path

    def settings(self, plugin):
        """The environment of all ranks."""
        return {**WEFT, "NCCL_NET_PLUGIN": self.plugins(plugin), **self.env}

    def place(self, rank, folder):
        return [POD, "pod%d" % rank], {"WEFT_RUN_DIR": folder}

    def tidy(self):
        """The next case finds everything as this one did."""
        if self.env is CABLE:
            pod_net.remove("wgpu0")

    def start(self, a, env, place=None):
        opt = dict(self.opt, case=self.program, nccl=a.nccl)
        return job.Job(self.script, env, opt, self.ranks, self.timeout,
                        place or self).end()

    def carry_out(self, a, plugin):
        """The ranks, once they have ended, and what is wrong, or nothing."""
        run = self.start(a, self.settings(plugin))
        return run, self.wrong(run)

    def wrong(self, run):
        """What is wrong, or nothing."""
        if any(run.codes):
            return "exit %s\n%s" % (run.codes, run.complaint())
        rows = [r for r in run.rows if r.get("case") == self.program]
        if len(rows) != self.ranks:
            return "%d of %d ranks ended" % (len(rows), self.ranks)
        if any(r.get("bad") for r in rows):
            return "wrong values: %s" % rows
        if any("skipped" in r for r in rows):
            return ""
        return self.traffic(run.carried()) or self.ways(run)

    def ways(self, run):
        """What is wrong with the ways that NCCL says it took, or nothing."""

    def traffic(self, carried):
        if set(carried) != {"tcp"} or not carried["tcp"]:
            return "not by TCP alone: %s" % carried
        return ""


class Visible(Case):
    """two pods: a kernel sees every byte"""
    timeout = 100
    opt = {"visible": MANY}


class Queue(Visible):
    """the same, all of the program's streams in one queue"""
    env = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


class Graph(Case):
    """a graph is captured beside traffic"""
    program = "graph"

    def wrong(self, run):
        bad = super().wrong(run)
        if not bad and not any(r.get("flowing") for r in run.rows):
            return "no traffic was under way"
        return bad


class Nap(Case):
    """a rank computes for a minute"""
    program, timeout, opt = "nap", 110, {"nap": 65}

    def wrong(self, run):
        bad = super().wrong(run)
        if not bad and max(r.get("waited_s", 0) for r in run.rows) < 60:
            return "no rank waited: %s" % run.rows
        return bad


class Apart(Case):
    """Two pods that share nothing but a cable."""
    env = CABLE

    def place(self, rank, folder):
        prefix, env = super().place(rank, folder)
        if rank == 0:
            return POD_NET + ["wait", "wgpu"] + prefix, env
        apart = os.path.join(folder, "apart")
        os.makedirs(apart, exist_ok=True)
        return POD_NET + ["wgpu"] + prefix, {"WEFT_RUN_DIR": apart}


class Train(Case):
    """PyTorch trains: code is loaded and memory freed beside collectives"""
    script, program, timeout = "rank_train.py", "train", 100


class Vanish(Apart):
    """a rank vanishes: its cable is cut"""
    program, timeout = "vanish", 90

    def place(self, rank, folder):
        self.opt = {"ready": folder + "/ready", "cut": folder + "/cut"}
        return super().place(rank, folder)

    def beside(self, run):
        while all(p.poll() is None for p in run.procs):
            if all(os.path.exists(run.dir + "/ready%d" % r) for r in (0, 1)):
                open(run.dir + "/cut", "w").close()
                pod_net.set_up("wgpu0", False)
                return
            if time.time() > run.deadline:
                return
            time.sleep(0.05)

    def wrong(self, run):
        rows = [r for r in run.rows if r.get("case") == "vanish"]
        if any(run.codes) or len(rows) != 2:
            return "exit %s\n%s" % (run.codes, run.complaint())
        for r in rows:
            if not r["error"] or not 0 <= r["told_s"] <= 30 or \
                    r["sockets_left"] > 0 or r["threads_left"]:
                return "%s" % r
        return ""


class Alien(Case):
    """with one rank without weft the others say so, and no rank hangs"""
    gpus = 2
    timeout, opt = 40, {"visible": SOME}

    def place(self, rank, folder):
        prefix, env = super().place(rank, folder)
        return prefix, dict(env, **({"NCCL_NET": "Socket",
                                     "NCCL_NET_PLUGIN": "none"} if rank else
                                    {}))

    def wrong(self, run):
        if not all(run.codes) or "no end" in str(run.codes):
            return "exit %s\n%s" % (run.codes, run.complaint())
        said = [x for x in run.log().splitlines() if " WARN " in x]
        why = [x for x in said if "the handle is not weft's" in x]
        print("        " + "\n        ".join(why[:1] or said[:6]))
        return "" if why else "no rank said why"


class Whole(Case):
    """two GPUs in one process, two communicators; weft second in a list"""
    gpus = 2
    ranks, program = 1, "whole"
    env = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
    opt = {"visible": [[8, 50], [65540, 50], [(1 << 20) + 4, 50],
                       [64 << 20, 10]]}

    def plugins(self, path):
        return "no-such-plugin," + path

    def wrong(self, run):
        bad = super().wrong(run)
        if not bad and run.rows[0]["gpus"] < 2:
            return "one GPU alone"
        return bad


CARRIED = {c.__name__.lower(): c for c in
           (Visible, Queue, Train, Graph, Whole, Vanish, Alien, Nap)}
