# SPDX-License-Identifier: BSD-3-Clause
"""
A Dask cluster of own processes, as a user starts it: `dask scheduler` and
`dask worker` with a scheduler file, under `weft run` or not.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from . import counters

# As the `dask` command, which a folder of packages alone does not have.
DASK = [sys.executable, "-m", "dask"]

# How the processes are started: under `weft run`; with LD_PRELOAD alone, so
# that the settings of a recipe decide; with UCX's own tcp, for comparison; as
# they are.
ARMS = ("weft", "preload", "tcp", "none")

# Nothing of the caller's own set-up may leak into a cluster.
FOREIGN = ("UCX_", "UCXPY_", "WEFT_", "DASK_", "NCCL_")


def own_environ():
    """This process's, without what is FOREIGN."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    # as up to 1.20: each UCX of today else spins for 0.4 s as it is loaded
    env["UCX_MEM_BISTRO_GRACE_DURATION"] = "5ms"
    return env


def weft_command():
    """The weft program of the tree under test, told by run.sh."""
    path = os.environ.get("E2E_WEFT") or shutil.which("weft")
    if not path:
        raise RuntimeError("no weft command: run tests/e2e/run.sh")
    return path


class Process:
    """A child in a session of its own, with its output in a file."""

    def __init__(self, name, argv, env, log, host=None):
        self.name = name
        self.log = log
        if host:
            argv = host.command(argv)
        with open(log, "ab") as out:
            self.popen = subprocess.Popen(argv, env=env, stdout=out,
                                          stderr=out,
                                          stdin=subprocess.DEVNULL)
        self.pid = self.popen.pid

    def output(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def alive(self):
        return self.popen.poll() is None

    def wait(self, seconds):
        """Exit status, or None when it still runs after @seconds."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self):
        self.popen.kill()
        self.popen.wait()

    def stop(self, seconds=15):
        """Ends it as a user would (SIGTERM), and writes its counters so."""
        if self.alive():
            self.popen.send_signal(signal.SIGTERM)
            if self.wait(seconds) is None:
                self.kill()
        return self.popen.returncode


class Cluster:
    """
    with Cluster("weft", "ucxx", hosts) as c: c.worker(); c.client(...)

    @hosts: a Host for the scheduler and the client, then one per worker;
    None: everything on 127.0.0.1.  A value of None in @env takes a variable
    of all processes from this one.
    """

    def __init__(self, arm, protocol="ucxx", hosts=None, env=None,
                 interface=None):
        assert arm in ARMS
        self.arm = arm
        self.protocol = protocol
        self.hosts = hosts
        self.interface = interface
        self.extra_env = dict(env or {})
        self.folder = None
        self.processes = []
        self.workers = []
        self.homes = {}  # process name: Host

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="weft-e2e.")
        self.scheduler_file = os.path.join(self.folder, "scheduler.json")
        try:
            self.scheduler = self.spawn(
                "scheduler",
                [*DASK, "scheduler", "--protocol", self.protocol,
                 "--scheduler-file", self.scheduler_file, "--no-dashboard",
                 "--port", "0", *self.place(0)], host=self.host(0))
            self.wait_for(lambda: os.path.exists(self.scheduler_file), 60,
                          "the scheduler file", self.scheduler)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind, *_):
        for process in reversed(self.processes):
            process.stop()
        if kind and os.environ.get("E2E_KEEP") != "1":
            for process in self.processes:
                tail = process.output().splitlines()[-25:]
                print(f"--- {process.name}", *tail, sep="\n",
                      file=sys.stderr)
        if os.environ.get("E2E_KEEP") == "1":
            print(f"kept {self.folder}", file=sys.stderr)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def host(self, index):
        return self.hosts[index] if self.hosts else None

    def place(self, index):
        if self.interface:
            return ["--interface", self.interface]
        if self.hosts:
            return ["--host", self.hosts[index].address]
        return ["--host", "127.0.0.1"]

    def env(self, name, extra=None):
        env = own_environ()
        env["PYTHONUNBUFFERED"] = "1"
        env["DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH"] = "1000"
        if self.arm == "tcp":
            env["UCX_TLS"] = "tcp"
        if self.arm == "preload":
            env["LD_PRELOAD"] = os.environ["E2E_PRELOAD"]
        if self.arm != "none":
            env["WEFT_STATS"] = f"{self.folder}/{name}.%p.stats"
        env.update(self.extra_env)
        env.update(extra or {})
        return {k: v for k, v in env.items() if v is not None}

    def spawn(self, name, argv, host=None, env=None, prefix=()):
        if self.arm == "weft":
            argv = [weft_command(), "run", *argv]
        self.homes[name] = host
        process = Process(name, [*prefix, *argv], self.env(name, env),
                          os.path.join(self.folder, f"{name}.log"), host)
        self.processes.append(process)
        return process

    def worker(self, env=None, host=None, prefix=(), args=(), name=None):
        """Starts one more worker; wait_workers() tells when it is there."""
        index = len(self.workers) + 1
        name = name or f"worker{index}"
        place = self.place(min(index, len(self.hosts) - 1)
                           if self.hosts else 0)
        if self.hosts and host is None:
            host = self.hosts[index]
        elif host is not None:
            place = ["--host", host.address]
        process = self.spawn(
            name,
            [*DASK, "worker", "--scheduler-file",
             self.scheduler_file, "--name", name, "--nthreads", "1",
             "--memory-limit", "0", "--no-dashboard",
             "--local-directory", self.folder, "--death-timeout", "60",
             *(() if "--nanny" in args else ("--no-nanny",)),
             *place, *args],
            host=host, env=env, prefix=prefix)
        self.workers.append(process)
        return process

    def client(self, script, *args, name="client", host=None, env=None):
        """Starts an unchanged Dask program: SCRIPT SCHEDULER_FILE ARGS..."""
        return self.spawn(name, [sys.executable, script, self.scheduler_file,
                                 *map(str, args)],
                          host=host or self.host(0), env=env)

    def run(self, script, *args, seconds=120, **how):
        """client() and its standard output; fails when the program does."""
        process = self.client(script, *args, **how)
        status = process.wait(seconds)
        if status is None:
            raise AssertionError(f"{script} hangs:\n{process.output()}")
        if status != 0:
            raise AssertionError(f"{script} failed ({status}):\n"
                                 f"{process.output()}")
        return process.output()

    def wait_for(self, condition, seconds, what, *processes):
        deadline = time.monotonic() + seconds
        while not condition():
            for process in processes:
                if not process.alive():
                    raise AssertionError(f"{process.name} ended:\n"
                                         f"{process.output()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} after {seconds} s")
            time.sleep(0.05)

    def stop(self):
        """Ends every process in order, so that all counters are written."""
        for process in reversed(self.processes):
            process.stop()

    def counters(self, name="*"):
        return counters.read_dir(self.folder, name)
