# SPDX-License-Identifier: BSD-3-Clause
"""
The programs and lines by which the page on launchers starts Dask, as they are.
Slurm, sshd (recipes/bin) and GPUs are stand-ins; dask-jobqueue, dask-cuda,
asyncssh and Dask are real.
"""
import os
import re

import asyncssh

from lib.program import last_json
from lib.site import PROGRAMS, site
from lib.tap import check, main, test

HERE = os.path.dirname(os.path.abspath(__file__))


def put(at, *names):
    """Files of the page, with the user's work beside them."""
    for name in names:
        at.put(name)
    at.settings["PYTHONPATH"] = PROGRAMS


def computed(at, line):
    """
    What the workers say, by a client whose process has the scheduler.  What it
    ends with is ucxx's: 0.52 may call a listener that Python has freed, when a
    worker connects just then.
    """
    said = at.type(line, fails=None)
    check('{"workers": ' in said, said)
    return last_json(said)["workers"]


def spread(at, workers, count, nodes):
    check(len(workers) == count, f"{len(workers)} workers, not {count}")
    used = {worker["host"] for worker in workers}
    check(used == set(at.nodes[:nodes]), f"workers on {used}")
    return at.carried_to(workers)


# ---- dask-jobqueue -----------------------------------------------------------


def slurm_cluster(export):
    """
    @export NONE: a job has a login's environment and nothing of the client's,
    so that only the words of python= load weft.
    """
    with site("ib0", 2) as at:
        put(at, "cluster.py")
        at.settings["SBATCH_EXPORT"] = export
        at.write_profile()
        workers = computed(at, "weft run python cluster.py")
        at.wait_until_all_ended()
        for job in "1", "2":
            script = at.read(f"stand-in/jobs/{job}/slurm_script")
            check(re.search("^weft run python -m "
                            "distributed.cli.dask_worker ucx://10.77.0.3:", script, re.M), script)
        return spread(at, workers, 2, 2)


@test(200)
def slurm_cluster_of_dask_jobqueue():
    return slurm_cluster("NONE")


@test(200, only_long=True)
def slurm_cluster_whose_jobs_inherit_the_environment():
    return slurm_cluster("ALL")


# ---- srun --------------------------------------------------------------------


@test(200)
def dask_workers_by_srun():
    with site("ib0", 2) as at:
        put(at, "dask.sbatch", "client.py")
        said = at.type("sbatch dask.sbatch")
        check(said == "Submitted batch job 1\n", said)
        check(" dask.sba     root  R      2 " in at.type("squeue --me"),
              "no job")
        said = at.type("weft run python client.py")
        workers = last_json(said)["workers"]
        check({worker["threads"] for worker in workers} == {4}, "threads")
        at.wait_until_all_ended()
        return spread(at, workers, 2, 2)


@test(60)
def slurm_stand_in_refuses_what_slurm_refuses():
    with site("ib0", 2) as at:
        def sbatch(*words, text="#!/bin/sh\n{}\n", line="", fails=True):
            with open(f"{at.folder}/job.sh", "w") as file:
                file.write(text.format(line))
            return at.run("sbatch", *words, "job.sh", fails=fails)

        for words, line, why in (
                (["--walltime=1"], "", "option --walltime not recognized"),
                (["-R", "span"], "", "option -R not recognized"),
                ([], "#SBATCH --gpu=1", "option --gpu not recognized"),
                (["-t", "1h"], "", "Invalid --time specification"),
                ([], "#SBATCH -t 1:2:3:4", "Invalid --time specification"),
                (["--mem=2 GB"], "", "Invalid --mem specification"),
                (["-N", "two"], "", 'Invalid numeric value "two"'),
                (["--export=ALl"], "", "plays ALL and NONE"),
                ([], "#SBATCH job", "Invalid directive found"),
                (["-c9"], "", "configuration is not available"),
                (["-n3", "-N2", "--ntasks-per-node=1"], "",
                 "plays --ntasks or --ntasks-per-node"),
                (["-N3"], "", "3 nodes are not free")):
            said = sbatch(*words, line=line)
            check(why in said, f"{words} {line}: {said}")
        check("not look like a batch script" in sbatch(text="true\n"), "no #!")
        check("Unable to open file" in at.run("sbatch", "x.sh", fails=True),
              "no file")
        check("plays a step of a job alone" in
              at.run("srun", "-n1", "true", fails=True), "srun")
        check("Invalid job id" in at.run("scancel", "7", fails=True), "scancel")
        check("--all not recognized" in
              at.run("squeue", "--all", fails=True), "squeue")

        steps = (
            ("env", "PROCID=0 LOCALID=0\nPROCID=1 LOCALID=1\n"
                    "PROCID=2 LOCALID=0\nPROCID=3 LOCALID=1\n"),
            ("-n 2 -N 2 env", "PROCID=0 LOCALID=0\nPROCID=1 LOCALID=0\n"),
            ("-c 4 -n 4 true", ""),
            ("-c 5 true", "More processors requested than permitted"),
            ("-n 17 true", "More processors requested than permitted"),
            ("--bind=no true", "option --bind not recognized"),
            ("-n 1", "No command given"))
        sbatch("-N2", "--ntasks-per-node=2", "-c4", fails=False, line="".join(
            f"srun {told} >step.{i} 2>&1\n".replace(
                "env", "sh -c 'echo PROCID=$SLURM_PROCID "
                "LOCALID=$SLURM_LOCALID'")
            for i, (told, _) in enumerate(steps)))
        at.wait_until_all_ended()
        for i, (told, want) in enumerate(steps):
            said = "".join(sorted(at.read(f"step.{i}").splitlines(True)))
            check(said == want or ": error: " in said and want in said,
                  f"srun {told}: {said}")

        # scancel ends the script's process alone, and what is left is killed
        for trap, seconds, ended in ("", 60, False), ("trap : TERM;", 2, True):
            line = f"{trap} sh -c 'echo ready; sleep {seconds}; echo ended'"
            job = sbatch("-o", "out.%j", line=f"{line}\ntrue",
                         fails=False).split()[-1]
            at.wait_for(lambda job=job: at.read(f"out.{job}"), "a job's word")
            at.run("scancel", job)
            at.wait_until_all_ended()
            check(("ended" in at.read(f"out.{job}")) == ended,
                  f"{line}: {at.read(f'out.{job}')}")


# ---- ssh ---------------------------------------------------------------------


def make_keys(at):
    """A user and hosts that know each other."""
    ssh = f"{at.folder}/.ssh"
    os.mkdir(ssh, 0o700)
    user, hosts = (asyncssh.generate_private_key("ssh-ed25519")
                   for _ in range(2))
    user.write_private_key(f"{ssh}/id_ed25519")
    user.write_public_key(f"{ssh}/authorized_keys")
    hosts.write_private_key(f"{ssh}/host_key")
    with open(f"{ssh}/known_hosts", "w") as file:
        file.write("* " + hosts.export_public_key().decode())


@test(200)
def ssh_cluster_over_ucx():
    """Hosts of an sshd each, by the names that the page has."""
    with site("ib0", 2) as at:
        put(at, "ssh_cluster.py")
        make_keys(at)
        at.write_profile()
        daemons = [at.start("sshd", on=node, log=f"sshd{number}")
                   for number, node in enumerate(at.nodes)]
        at.wait_for(lambda: all("listening" in at.read(f"sshd{number}.log")
                                for number in range(len(daemons))),
                    "every sshd listens")
        said = at.type("weft run python ssh_cluster.py")
        at.wait_for(lambda: len(at.processes()) == len(daemons),
                    "the end of all but sshd")
        return spread(at, last_json(said)["workers"], 2, 2)


# ---- one host ----------------------------------------------------------------


@test(200)
def local_cuda_cluster_over_shared_memory():
    """A worker for each of two GPUs, which are there in name only."""
    with site("ib0", 0) as at:
        put(at, "local_cluster.py")
        at.settings["PYTHONPATH"] += f":{HERE}/double/gpus"
        workers = computed(at, "weft run python local_cluster.py")
        at.wait_until_all_ended()
        check(sorted(worker["env"]["CUDA_VISIBLE_DEVICES"]
                     for worker in workers) == ["0,1", "1,0"], "GPUs")
        return at.carried_to(workers, "shm")


if __name__ == "__main__":
    main()
