# SPDX-License-Identifier: BSD-3-Clause
"""
NCCL over weft: what must hold whatever the speed.  Each rank runs in a pod of
its own (tests/gpu/pod.sh), and a kernel checks every value on the receiving GPU.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import time

import arms
import pod_net

HERE = arms.HERE
POD = os.path.join(HERE, "pod.sh")
WEFT = {"NCCL_NET": "weft", "NCCL_RAS_ENABLE": "0"}
# A cable between the host's network and the last rank's
CABLE = {"NCCL_SOCKET_IFNAME": "=wgpu0,wgpu1", "NCCL_SOCKET_FAMILY": "AF_INET"}
POD_NET = [sys.executable, os.path.join(HERE, "pod_net.py")]
MANY = [[8, 1000], [4100, 1000], [65540, 1000], [(1 << 20) + 4, 600],
        [8 << 20, 200], [64 << 20, 40]]
SOME = [[8, 20], [65540, 20], [(1 << 20) + 4, 10], [8 << 20, 5]]


class Case:
    """How the ranks are placed, and what is wrong with what came of it."""
    ranks, timeout, program, env, opt = 2, 60, "visible", {}, {}
    script = "rank_cases.py"

    def skip(self):
        """Why it cannot be tried here, or nothing."""

    def plugins(self, path):
        """NCCL_NET_PLUGIN, where weft's plugin is @path."""
        return path

    def place(self, rank, folder):
        """What to run the rank under, and its environment."""
        return [POD, "pod%d" % rank], {"WEFT_RUN_DIR": folder}

    def beside(self, run):
        """What happens meanwhile."""

    def tidy(self):
        """The next case finds everything as this one did."""
        if self.env is CABLE:
            pod_net.remove("wgpu0")

    def wrong(self, run):
        """What is wrong, or nothing."""
        if any(run.codes):
            return "exit %s\n%s" % (run.codes, run.complaint())
        rows = [r for r in run.rows if r.get("case") == self.program]
        if len(rows) != self.ranks:
            return "%d of %d ranks ended" % (len(rows), self.ranks)
        if any(r.get("bad") for r in rows):
            return "wrong values: %s" % rows
        return self.traffic(run.carried())

    def traffic(self, carried):
        if not carried.get("nvlink"):
            return "NVLink carried nothing: %s" % carried
        if carried.get("tcp"):
            return "TCP carried %d bytes" % carried["tcp"]
        return ""


class Visible(Case):
    """two pods: a kernel sees every byte"""
    timeout = 100
    opt = {"visible": MANY}


class Ring(Visible):
    """the same, nothing mapped: through host memory"""
    env = {"WEFT_NVL_DIRECT": "off"}


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
            return "nobody waited: %s" % run.rows
        return bad


class Hidden(Case):
    """each pod has the device node of its own GPU alone"""
    opt = {"visible": [[8, 100], [65540, 100], [(1 << 20) + 4, 50],
                       [64 << 20, 10]]}

    def place(self, rank, folder):
        return ["env", "POD_GPU=%d" % rank, POD, "pod%d" % rank], \
            {"WEFT_RUN_DIR": folder}

    def wrong(self, run):
        bad = super().wrong(run)
        said = [x for x in run.log().splitlines() if " WARN " in x]
        if not bad and not 1 <= len(said) <= self.ranks:
            return "%d warnings, not one from each:\n%s" % (
                len(said), "\n".join(said[:6]))
        return bad


class Stranger(Case):
    """two pods by NVLink, a third that shares nothing with them by TCP"""
    ranks, timeout, env, opt = 3, 90, CABLE, {"visible": SOME}

    def place(self, rank, folder):
        prefix, env = super().place(rank, folder)
        if rank < 2:
            return POD_NET + ["wait", "wgpu"] + prefix, env
        apart = os.path.join(folder, "apart")
        os.makedirs(apart, exist_ok=True)
        return POD_NET + ["wgpu"] + prefix, {"WEFT_RUN_DIR": apart}

    def traffic(self, carried):
        if not carried.get("nvlink") or not carried.get("tcp"):
            return "not by both: %s" % carried
        return ""


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


class TrainApart(Apart):
    """the same, by TCP from GPU memory"""
    script, program, timeout = "rank_train.py", "train", 100

    def traffic(self, carried):
        if carried.get("nvlink") or not carried.get("tcp"):
            return "not by TCP: %s" % carried
        return ""


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
    """one rank without weft is told so, and nobody hangs"""
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
        return "" if why else "nobody said why"


class Whole(Case):
    """two GPUs in one process, two communicators; weft second in a list"""
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


class Mps(Case):
    """GPUs used through MPS: through host memory, with one warning each"""
    control = "nvidia-cuda-mps-control"
    # clients of one daemon share its IPC namespace
    env = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1"}
    opt = {"visible": [[8, 100], [65540, 100], [(1 << 20) + 4, 50],
                       [64 << 20, 10]]}

    def skip(self):
        return "" if shutil.which(self.control) else "no " + self.control

    def place(self, rank, folder):
        env = {"WEFT_RUN_DIR": folder, "CUDA_MPS_PIPE_DIRECTORY": folder,
               "CUDA_MPS_LOG_DIRECTORY": folder}
        self.daemon = dict(os.environ, **env)
        if rank == 0:
            subprocess.run([self.control, "-d"], env=self.daemon, check=True)
        return [], env

    def wrong(self, run):
        bad = super().wrong(run)
        subprocess.run([self.control], env=self.daemon, input="quit\n",
                       text=True, timeout=30)
        said = [x for x in run.log().splitlines() if " WARN " in x]
        if not bad and not (len(said) == self.ranks and
                            all("through MPS" in x for x in said)):
            return "%d warnings, not one of MPS from each:\n%s" % (
                len(said), "\n".join(said[:6]))
        return bad


CASES = {c.__name__.lower(): c for c in
         (Visible, Ring, Queue, Train, TrainApart, Graph, Hidden, Stranger,
          Whole, Mps, Vanish, Alien, Nap)}


def run_case(name, a):
    case = CASES[name]()
    why = case.skip()
    if why:
        print("skipped  %s: %s" % (name, why))
        return {"case": name, "what": case.__doc__, "skipped": why}
    # old releases take a name alone
    plugin = os.environ.get("NCCL_NET_PLUGIN", a.plugin)
    env = dict(WEFT, NCCL_NET_PLUGIN=case.plugins(plugin), **case.env)
    opt = dict(case.opt, case=case.program, nccl=a.nccl)
    start = time.time()
    try:
        run = arms.Arm(case.script, env, opt, case.ranks, case.timeout, 1,
                       case)
    finally:
        case.tidy()
    bad = case.wrong(run)
    rows = [r for r in run.rows if "case" in r]
    print("%-8s %-58s %5.1f s  %s" % ("FAILED" if bad else "ok", "%s: %s" % (
        name, case.__doc__), time.time() - start, bad or " ".join(
            "%.2f %s GB" % (n / 1e9, d) for d, n in run.carried().items())))
    if rows and not bad:
        print("        " + json.dumps(rows[0]))
    with open(os.path.join(a.out, "case.%s.log" % name), "w") as f:
        f.write("\n".join(run.errors) + "\n" + run.log()[:300000])
    return {"case": name, "what": case.__doc__, "bad": bad,
            "rows": rows, "carried": run.carried()}


def main():
    p = argparse.ArgumentParser(prog="tests/gpu/run.sh --cases",
                                description=__doc__)
    p.add_argument("--plugin", required=True, help=argparse.SUPPRESS)
    p.add_argument("--out", required=True, help=argparse.SUPPRESS)
    p.add_argument("--nccl", help="a libnccl.so.2, instead of torch's")
    p.add_argument("names", nargs="*", metavar="CASE",
                   help="of: " + ", ".join(CASES))
    a = p.parse_args()
    a.nccl = os.path.abspath(a.nccl) if a.nccl else arms.torch_nccl()
    unknown = [n for n in a.names if n not in CASES]
    if unknown:
        p.error("no case is named '%s'; there are %s" %
                (unknown[0], ", ".join(CASES)))
    done = [run_case(name, a) for name in a.names or CASES]
    with open(os.path.join(a.out, "cases.json"), "w") as f:
        json.dump(done, f, indent=1)
    tried = [d for d in done if "skipped" not in d]
    failed = [d["case"] for d in tried if d["bad"]]
    print("%d of %d cases hold, %d skipped%s" % (
        len(tried) - len(failed), len(tried), len(done) - len(tried),
        failed and "; not: " + ", ".join(failed) or ""))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
